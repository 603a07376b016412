"""Compares every command with Kafka's own tool, column by column, and the tasks of members with the application's."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from click.testing import CliRunner

from streaming_app.cli.main import main
from tests.support.kafka_tool import StreamsGroupsTool, parse
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

SHORT_SESSIONS = {
    "group.streams.min.session.timeout.ms": "5000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
}
"""Configuration of a broker that soon removes killed members."""
_FORMS = (
    *(("describe", *form) for form in ((), ("--offsets",), ("--state",), ("--members",))),
    *(("describe", *form, "--verbose") for form in ((), ("--offsets",), ("--state",), ("--members",))),
)
_ONLY_KAFKA = {"MEMBER-PROTOCOL"}
"""Columns that are not shown: always `streams`, until a streams group may have members of other protocols."""
_Printed = dict[str, dict[str, str]]


class ComparedGroup:
    """A group: the output of Kafka's tool, the output of the commands, and the processes of its application."""

    def __init__(
        self, group_id: str, server: str, warehouse: Path, tool: StreamsGroupsTool, *applications: StreamsApplication
    ) -> None:
        self.group_id, self.applications = group_id, list(applications)
        self._server, self._warehouse, self._tool = server, warehouse, tool

    def await_equal(self, state: str, *, answering: bool = True) -> None:
        """Return once the group is in this state and everything is equal; else fail with the last differences.

        With `answering=False`, the applications are not asked for their tasks.
        """
        last: list[str] = []

        def is_equal() -> bool:
            last[:] = self._differences(state, answering=answering)
            return not last

        assert wait_until(is_equal, interval=0.5), "\n".join(last)

    def _differences(self, state: str, *, answering: bool) -> list[str]:
        listed = (self._printed_by_kafka("list", "--state"), self._printed("list", "--state"))
        for rows in listed:
            if (found := rows.get(self.group_id, {}).get("STATE")) != state:
                return [f"{self.group_id} is {found}, not {state}"]
        found = next((lines for form in _FORMS if (lines := list(self._differ(*form)))), [])
        return found or (list(self._differing_tasks()) if answering else []) or self._verify()

    def _differ(self, *form: str) -> Iterator[str]:
        kafka, own = self._printed_by_kafka(*form), self._printed(*form)
        if "--members" in form:
            yield from (f"{form}: {key} is not in both" for key in kafka.keys() ^ own.keys())
        for key, row in kafka.items():
            for column in row.keys() - _ONLY_KAFKA:
                if (ours := own.get(key, {}).get(column)) != row[column]:
                    yield f"{form} {key} {column}: Kafka has {row[column]!r}, not {ours!r}"

    def _printed_by_kafka(self, command: str, *options: str) -> _Printed:
        return _by_key(self._tool.rows(f"--{command}", *self._named(command, "--group"), *options))

    def _printed(self, command: str, *options: str) -> _Printed:
        return _by_key(parse(self._run(command, *self._named(command), *options)))

    def _named(self, command: str, *option: str) -> list[str]:
        return [*option, self.group_id] if command == "describe" else []

    def _differing_tasks(self) -> Iterator[str]:
        """Yield the differences between the tasks of members and those of the application's threads."""
        threads = (one for process in self.applications for of in process.tasks() for one in of["threads"])
        own = {
            f"{one['name']}-consumer": {(role.upper(), task) for role in ("active", "standby") for task in one[role]}
            for one in threads
        }
        members = parse(self._run("describe", self.group_id, "--members"))
        ours = {row["CLIENT-ID"]: set(_each_task(row["ASSIGNMENTS"])) for row in members}
        if own != ours:
            yield f"tasks: the threads have {own}, not {ours}"

    def _verify(self) -> list[str]:
        options = ["--bootstrap-server", self._server, "--warehouse", str(self._warehouse)]
        ran = CliRunner().invoke(main, ["verify", *options])
        return [] if ran.exit_code == 0 else [ran.output]

    def _run(self, *arguments: str) -> str:
        """Return the output of a command; before the first batch the group may not exist."""
        return CliRunner().invoke(main, [*arguments, "--warehouse", str(self._warehouse)]).stdout


def _by_key(rows: Iterable[dict[str, str]]) -> _Printed:
    """Return rows by topic and partition, by member, or by group, with tasks sorted: Kafka's tool has no order.

    The tool prints target tasks in the same column.
    """
    found = {}
    for row in rows:
        key = f"{row['TOPIC']}-{row['PARTITION']}" if "TOPIC" in row else row.get("MEMBER", row["GROUP"])
        if "ASSIGNMENTS" in row:
            tasks = [*_each_task(row["ASSIGNMENTS"])]
            tasks += [(f"TARGET-{role}", task) for role, task in _each_task(row.get("TARGET-ASSIGNMENTS", ""))]
            row["ASSIGNMENTS"] = " ".join(f"{role}:{task}" for role, task in sorted(tasks))
        found[key] = row
    return found


def _each_task(text: str) -> Iterator[tuple[str, str]]:
    """Yield role and name of each task in `ACTIVE: 0:[0,1]; 1:[0]; STANDBY: 1:[2];`."""
    role = ""
    for named, subtopology, partitions in re.findall(r"(?:([A-Z-]+): )?(\w+):\[([\d,]+)\]", text):
        role = named or role
        yield from ((role, f"{subtopology}_{partition}") for partition in partitions.split(","))

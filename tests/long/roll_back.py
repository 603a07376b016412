"""A warehouse goes from the job of the release before to this one's, and back by a copy.

    python -m tests.long.roll_back OLD_TREE

A real broker holds groups, some of which are Down for two days. The job of the old tree reads them, a copy is made, and
the new job upgrades the warehouse and continues it. Then the copy is restored, and the old job continues that. After
each, the tables that follow from the log alone are those of a fresh warehouse, and the commands of this tree read it;
those of the other one refuse it in one line. Every difference is printed.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streaming_app.tables.definitions import tables
from tests.histories.judged import ALL
from tests.long.side_by_side import compare_rows, rows_of
from tests.long.told import HERE, command, environment, run_tree
from tests.support.internal_topic import write_internal
from tests.support.job_runner import STREAMS_GROUPS
from tests.support.offsets_topic import epoch_records
from tests.support.receivers import HttpReceiver
from tests.support.waiting import wait_until
from tests.support.written_history import HistoriesBroker, WrittenHistory, writable

_AGO = 2 * 86_400.0
_HISTORIES = 4
_OF_THE_LOG = ("groups", "topologies", "group_events", "offset_commits", "group_records")
_NEWEST = {one.name: one.key[:-1] for one in tables() if one.name in {"group_records", "offset_commits"}}


class Trees:
    """Runs commands of both trees on one broker and one configuration."""

    def __init__(self, old: Path, directory: Path, server: str, configuration: Path) -> None:
        self.trees = {"old": old, "new": HERE}
        self.directory, self.server, self.configuration = directory, server, configuration
        self.warehouse, self.began = directory / "warehouse", datetime.now(timezone.utc)

    def run(self, tree: str, warehouse: Path) -> None:
        """Let the job of a tree read what there is. AssertionError: it failed."""
        run_tree(self.trees[tree], self.server, warehouse, "--config", str(self.configuration))

    def until_told(self, receiver: HttpReceiver, rule: str) -> list[str]:
        """Run the new job until the receiver has got a message about a rule; return all rules of its messages."""
        with (self.directory / "live.log").open("wb") as log:
            started = [*STREAMS_GROUPS, "run", *map(str, self._of(self.warehouse))]
            job = subprocess.Popen(started, cwd=HERE, env=environment(HERE), stdout=log, stderr=log)
            wait_until(lambda: job.poll() is not None or any(rule in str(one.body) for one in receiver.requests), 500.0)
            job.send_signal(signal.SIGTERM)
            print("live job:", job.wait(60.0))
        return [str(one.json["data"]["rule"]) for one in receiver.requests]

    def _of(self, warehouse: Path) -> tuple[object, ...]:
        return "--config", self.configuration, "--bootstrap-server", self.server, "--warehouse", warehouse

    def differences(self, tree: str, step: str) -> Iterator[str]:
        """Yield where the warehouse differs from a fresh one of the same tree."""
        fresh = self.directory / f"fresh-{step}"
        configured = self.configuration.read_text("utf-8")
        self.configuration.write_text("{}\n", "utf-8")  # it tells nobody
        self.run(tree, fresh)
        self.configuration.write_text(configured, "utf-8")
        for name in _OF_THE_LOG:
            for found in compare_rows(name, _rows(self.warehouse / name), _rows(fresh / name), self.began):
                yield f"{step}: {found}"

    def answers(self, tree: str, step: str, groups: list[str]) -> Iterator[str]:
        """Yield the commands that fail in this tree, and those that the other one does not refuse in one line."""
        of = ("--warehouse", self.warehouse)
        for words in (
            ("list", *of, "--health"),
            *(("describe", *of, "--group", one) for one in groups),
            *(("why", *of, "--group", one) for one in groups),
            ("lag", *of),
            ("status", *of),
            ("alerts", *of, "--json"),
            ("history", *of, "--group", groups[0]),
            ("sql", *of, "SELECT input, count(*) FROM inputs GROUP BY input"),
            ("check", *self._of(self.warehouse)),
        ):
            for name in self.trees:
                one = command(self.trees[name], *words)
                lines = one.stderr.splitlines()  # the first may say that the job does not run
                is_refused = one.returncode == 1 and len(lines) <= 2 and "".join(lines[-1:]).startswith("Error")
                is_right = is_refused if name != tree else one.returncode in (0, 1) and "Error" not in one.stderr
                if "Traceback" in one.stderr or not (is_right or words[0] == "check"):
                    yield f"{step}: {name}: {' '.join(map(str, words))}: {one.returncode}: {one.stderr[-500:]}"


def _rows(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a table; of one that keeps rows until they are compacted, the newest of each key."""
    rows, key = rows_of(table), _NEWEST.get(table.name)
    if key is None:
        return rows
    return [*{tuple(row[one] for one in key): row for row in sorted(rows, key=itemgetter("last_offset"))}.values()]


def _bad(ended_at: float) -> Iterator[WrittenHistory]:
    """Yield histories that end in an outage."""
    for number, history in enumerate(ALL):
        for one in writable([history], ended_at):
            one.name = f"h{number}"
            if one.bad:
                yield one


def main(old: Path) -> None:
    """Play it, and print what was found."""
    bad = list(islice(_bad(time.time() - _AGO), _HISTORIES))
    with (
        TemporaryDirectory() as name,
        HistoriesBroker(Path(name) / "broker", bad) as broker,
        HttpReceiver() as receiver,
    ):
        configuration = Path(name) / "config.yaml"
        configuration.write_text("{}\n")
        trees = Trees(old, Path(name), broker.server, configuration)
        groups = [group for one in bad for group in sorted(one.bad)]
        some = [groups[0], groups[1]]
        epoch = 100

        def step(tree: str, name: str) -> None:
            nonlocal epoch
            print(time.strftime("%H:%M:%S"), "step", name, flush=True)
            trees.run(tree, trees.warehouse)
            for line in (*trees.differences(tree, name), *trees.answers(tree, name, some)):
                print(line, flush=True)
            epoch += 1
            write_internal(broker.server, [pair for one in groups[1:3] for pair in epoch_records(one, epoch)])
            write_internal(broker.server, epoch_records(f"new-{name}", epoch))

        step("old", "1-old")
        copied = trees.directory / "copy"
        shutil.copytree(trees.warehouse, copied)
        checked = command(HERE, "check", "--bootstrap-server", broker.server, "--warehouse", trees.warehouse)
        print(next(line for line in checked.stdout.splitlines() if "tables" in line))
        step("new", "2-new")
        configuration.write_text(f"sinks: [{{type: webhook, name: hook, url: '{receiver.url}/'}}]\n")
        print("told:", trees.until_told(receiver, "StreamsGroupsOldAlerts"), flush=True)
        ran = command(old, "run", "--once", "--bootstrap-server", broker.server, "--warehouse", trees.warehouse)
        print("the old job on the new tables:", ran.returncode, ran.stderr)
        shutil.rmtree(trees.warehouse)
        shutil.copytree(copied, trees.warehouse)
        step("old", "3-old")
        step("new", "4-new")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())

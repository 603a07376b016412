"""The command `verify`: connects both sides, shows what is waited for, prints what differs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming_app.cli.options import connected, explained, located
from streaming_app.serve.place import Place

if TYPE_CHECKING:
    from streaming_app.serve.position import Position
    from streaming_app.verify.agreement import Report

_ANSWER_SECONDS = (2.0, 10.0)  # how long a broker may take to answer first: the timeout, within these bounds
_NAMED = 10  # groups named in one line
_LINE_SECONDS = 5.0  # between lines of progress where no terminal shows a living one


@click.command()
@connected
@located
@click.option(
    "--timeout",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long to wait for the job to catch up, and for groups to hold still.",
)
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@explained
def verify(  # noqa: PLR0913, PLR0917 - one per option
    bootstrap_server: str, command_config: Path | None, warehouse: Place, cluster: str, timeout: float, as_json: bool
) -> None:
    """Compare the tables with what the brokers say of every streams group. Exit code 0 only if nothing differs."""
    from kafka.errors import KafkaError  # noqa: PLC0415 - --help needs none of these

    from streaming_app.job.refused import missing_acl  # noqa: PLC0415
    from streaming_app.protocol.client import StreamsGroupClient  # noqa: PLC0415
    from streaming_app.protocol.errors import TOPIC_AUTHORIZATION_FAILED, GroupError  # noqa: PLC0415
    from streaming_app.protocol.security import SecurityError, read_properties, security_settings  # noqa: PLC0415
    from streaming_app.verify.agreement import VerifyError  # noqa: PLC0415
    from streaming_app.verify.agreement import verify as compare  # noqa: PLC0415

    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)  # what matters of it comes as an exception
    tables = _Tables(warehouse, cluster)
    tables.alive()  # a warehouse that is not there is told before a broker is asked
    try:
        properties = read_properties(command_config) if command_config else {}
        security = security_settings(properties)
        least, most = _ANSWER_SECONDS
        answer_ms = int(1000 * min(max(timeout, least), most))
        with (
            _progress() as progress,
            StreamsGroupClient(bootstrap_server, bootstrap_timeout_ms=answer_ms, **security) as client,
        ):
            report = compare(client, tables, _Clock(), timeout, progress)
    except SecurityError as error:
        raise click.ClickException(f"--command-config: {error}") from None
    except VerifyError as error:
        raise click.ClickException(str(error)) from None
    except GroupError as error:
        lacking = missing_acl("DESCRIBE", "Topic", error.message) if error.code == TOPIC_AUTHORIZATION_FAILED else None
        raise click.ClickException(lacking or f"{bootstrap_server} refused: {error}") from None
    except (KafkaError, OSError, ValueError) as error:
        raise click.ClickException(_unanswered(bootstrap_server, properties, error)) from None
    _print(report, as_json=as_json)
    raise SystemExit(0 if report.agrees else 1)


def _unanswered(bootstrap_server: str, properties: Mapping[str, str], error: Exception) -> str:
    from streaming_app.job.refused import missing_acl  # noqa: PLC0415 - --help needs none of these
    from streaming_app.protocol import trouble  # noqa: PLC0415

    name, words = type(error).__name__, " ".join(str(error).split())
    if name == "GroupAuthorizationFailedError" and (told := re.search(r"GROUP/(.+?):?$", words)):
        return missing_acl("DESCRIBE", "Group", told[1])
    if "Authorization" in name:
        return f"{bootstrap_server} refused: {words}; verify needs Describe on the groups and on the offsets topic"
    if "Timeout" in name or "Connection" in name or "NoBrokers" in name or "Authentication" in name:
        unseen = trouble.LINES[trouble.SILENT].format(servers=bootstrap_server)
        return trouble.reason(bootstrap_server, properties) or unseen
    return f"{bootstrap_server}: {name}: {words}"


class _Tables:
    """The warehouse as it is at each question."""

    _COLUMNS = (
        "group_id, state, readiness_recorded, group_epoch, assignment_epoch, assigned_at, topology_epoch, "
        "members, assignments, subtopologies"
    )

    def __init__(self, warehouse: Place, cluster: str) -> None:
        self._warehouse = warehouse
        self._cluster = cluster

    def position(self) -> Position | None:
        from streaming_app.serve.position import position  # noqa: PLC0415 - --help needs none of these

        return position(self._warehouse, self._cluster)

    def alive(self) -> list[str]:
        return [row["group_id"] for row in self._groups("group_id", "state <> 'Dead'")]

    def rows(self, first: str, last: str) -> Mapping[str, Mapping[str, Any]]:
        from streaming_app.serve.warehouse import quoted  # noqa: PLC0415 - --help needs none of these

        those = f"group_id BETWEEN {quoted(first)} AND {quoted(last)}"
        return {row["group_id"]: row for row in self._groups(self._COLUMNS, those)}

    def _groups(self, columns: str, where: str) -> list[dict[str, Any]]:
        from streaming_app.serve.warehouse import Warehouse, quoted  # noqa: PLC0415 - --help needs none of these

        mine = f"cluster = {quoted(self._cluster)} AND {where}"
        return Warehouse(self._warehouse).rows(f"SELECT {columns} FROM groups WHERE {mine}")  # noqa: S608 - quoted


class _Clock:
    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """On a terminal one living line, elsewhere a line now and then; both on stderr."""
    from rich.console import Console  # noqa: PLC0415 - --help needs none of these

    console = Console(stderr=True)
    told = time.monotonic()

    def line(text: str) -> None:
        nonlocal told
        if time.monotonic() - told >= _LINE_SECONDS:
            told = time.monotonic()
            click.echo(text, err=True)

    if console.is_terminal:
        with console.status("comparing ...") as status:
            yield status.update
    else:
        yield line


def _print(report: Report, *, as_json: bool) -> None:
    from streaming_app.serve import printing  # noqa: PLC0415 - --help needs none of these

    if as_json:
        told = asdict(report) | {
            "differences": [one._asdict() for one in report.differences],
            "not_compared": [one._asdict() for one in report.not_compared],
            "agrees": report.agrees,
        }
        click.echo(printing.as_json(told))
        return
    for difference in report.differences:
        click.echo(printing.cell(str(difference)))
    for line in _not_compared(report):
        click.echo(printing.cell(line))
    click.echo(_summary(report))


def _not_compared(report: Report) -> Iterator[str]:
    """A line for each reason: a job that stands still would otherwise give one for every group."""
    by_reason: dict[str, list[str]] = {}
    for one in report.not_compared:
        by_reason.setdefault(one.reason, []).append(one.group_id)
    for reason, group_ids in by_reason.items():
        more = len(group_ids) - _NAMED
        yield f"not compared: {reason}: {', '.join(group_ids[:_NAMED])}" + (f" and {more:,} more" if more > 0 else "")


def _summary(report: Report) -> str:
    differing = len({one.group_id for one in report.differences})
    parts = [f"{report.agreeing:,} groups agree"]
    if report.stateless:
        parts.append(f"{report.stateless:,} of them but for the state, which the log of their broker does not tell")
    parts.append(f"{differing:,} differ")
    parts += [f"{len(report.not_compared):,} not compared"] if report.not_compared else []
    return ", ".join(parts)

"""The command `verify`: connects to the brokers, shows progress, prints what differs from the tables."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from streaming_app.checks.verification import Comparison, Verification, WarehouseTables
from streaming_app.cli.options import broker_options, duration_option, require_server, warehouse_options
from streaming_app.cli.printing import echo, echo_error, echo_json
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import CONNECT_SECONDS
from streaming_app.kafka.error_lines import errors_as_lines
from streaming_app.kafka.properties import client_properties
from streaming_app.tables.location import Location
from streaming_app.text import count, first_of

_NEEDS = "verify needs Describe on the groups and on the offsets topic"
_SHORTEST_CONNECT_SECONDS = 2.0  # even with a shorter --timeout
_GROUPS_PER_LINE = 10  # named; of more, the number is printed
_PROGRESS_SECONDS = 5.0  # between lines of progress


@click.command
@broker_options
@warehouse_options()
@duration_option("--timeout", "30s", "How long to wait for the job to catch up, and for groups to stop changing.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def verify(  # noqa: PLR0913, PLR0917 - one per option
    bootstrap_server: str, command_config: Path | None, warehouse: Location, cluster: str, timeout: float, as_json: bool
) -> None:
    """Compare the tables with the brokers' description of every streams group. Exits with 0 only if nothing differs."""
    require_server(bootstrap_server)
    tables = WarehouseTables(warehouse, cluster)
    tables.group_ids()  # fail on a missing warehouse before connecting to a broker
    properties = client_properties(bootstrap_server, command_config)
    patience = min(max(timeout, _SHORTEST_CONNECT_SECONDS), CONNECT_SECONDS)
    progress = _every_few_seconds(time.monotonic())
    with errors_as_lines(properties, _NEEDS), StreamsGroupClient.of(properties, patience) as client:
        report = Verification(client, tables, timeout, progress).run()
    _print(report, as_json=as_json)
    raise SystemExit(0 if report.agrees else 1)


def _every_few_seconds(said_at: float) -> Callable[[str], None]:
    """Return a function that prints its text on stderr if some seconds have passed since the last one."""

    def print_line(text: str) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _PROGRESS_SECONDS:
            said_at = time.monotonic()
            echo_error(text)

    return print_line


def _print(report: Comparison, *, as_json: bool) -> None:
    if as_json:
        result = asdict(report) | {
            "differences": [difference._asdict() for difference in report.differences],
            "not_compared": [group._asdict() for group in report.not_compared],
            "agrees": report.agrees,
        }
        echo_json(result)
        return
    for difference in report.differences:
        echo(str(difference))
    for line in _not_compared_lines(report):
        echo(line)
    echo(_summary(report))


def _not_compared_lines(report: Comparison) -> Iterator[str]:
    """Yield one line for each reason; for a stopped job, one line for each group would be too many."""
    by_reason: dict[str, list[str]] = {}
    for group in report.not_compared:
        by_reason.setdefault(group.reason, []).append(group.group_id)
    for reason, group_ids in by_reason.items():
        yield f"not compared: {reason}: {first_of(group_ids, _GROUPS_PER_LINE)}"


def _summary(report: Comparison) -> str:
    differing = len({difference.group_id for difference in report.differences})
    parts = [count(report.agreeing, "group agrees", "groups agree")]
    if report.stateless:
        parts.append(f"{report.stateless:,} of them without the state, which their broker does not write to the log")
    parts.append(count(differing, "differs", "differ"))
    parts += [f"{len(report.not_compared):,} not compared"] if report.not_compared else []
    return ", ".join(parts)

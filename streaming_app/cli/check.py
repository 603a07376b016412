"""`streams-groups check`: what must hold before the first start of the job, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from streaming_app.cli.options import handle_errors, job_options, require_server
from streaming_app.text import escape

if TYPE_CHECKING:
    from streaming_app.checks.result import Result
    from streaming_app.config.load import LoadedConfig
    from streaming_app.config.settings import Settings

_STATUS_WIDTH = len("warning")


@click.command()
@job_options
@click.option("--send-test", is_flag=True, help="Send a test notification to every sink.")
@click.option("--json", "as_json", is_flag=True, help="The results as JSON.")
@handle_errors
def check(loaded: LoadedConfig, send_test: bool, as_json: bool) -> None:
    """Check what the job needs before its first start. Exits with 1 if a check fails.

    One line for each: Java, memory, jars, the port of the metrics, every broker, the topic, each ACL, the clocks, the
    warehouse, the sinks. Takes the options of run.
    """
    require_server(loaded.settings.bootstrap_server)
    results = []
    for result in _results(loaded.settings, send_test=send_test):
        results.append(result)
        if not as_json:
            _print(result)
    counts = Counter(result.status for result in results)
    if as_json:
        _print_json(results)
    else:
        click.echo(escape(", ".join(f"{number} {status}" for status, number in counts.items())))
    raise SystemExit(1 if counts["failed"] else 0)


def _results(settings: Settings, *, send_test: bool) -> Iterator[Result]:
    from streaming_app.checks.brokers import check_brokers  # noqa: PLC0415 - --help needs none of these
    from streaming_app.checks.machine import check_machine  # noqa: PLC0415
    from streaming_app.checks.sinks import check_sinks  # noqa: PLC0415
    from streaming_app.checks.warehouse import check_warehouse  # noqa: PLC0415
    from streaming_app.kafka.properties import client_properties  # noqa: PLC0415

    properties = client_properties(settings.bootstrap_server or "", settings.command_config)
    yield from check_machine(
        settings.conf,
        settings.metrics.listen,
        settings.page.listen,
        lambda line: click.echo(escape(line), err=True),
    )
    yield from check_brokers(properties, settings.topic)
    yield from check_warehouse(settings.warehouse.absolute(), settings.cluster)
    yield from check_sinks(settings.sinks, settings.cluster, send_test=send_test)


def _print(result: Result) -> None:
    from streaming_app.queries.output import cell  # noqa: PLC0415 - --help needs none of these

    remedy = f"; {result.remedy}" if result.remedy else ""
    click.echo(cell(f"{result.status:<{_STATUS_WIDTH}}  {result.check}: {result.text}{remedy}"))


def _print_json(results: Iterable[Result]) -> None:
    from streaming_app.queries.output import as_json  # noqa: PLC0415 - --help needs none of these

    click.echo(as_json([result._asdict() for result in results]))

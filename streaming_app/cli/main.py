"""Every command of `streams-groups`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from streaming_app.cli.config import config
from streaming_app.cli.decode import decode
from streaming_app.cli.operations import alerts, status
from streaming_app.cli.options import explained, governed, located, refuse_without_server
from streaming_app.cli.verify import verify
from streaming_app.serve.place import Place

if TYPE_CHECKING:
    from streaming_app.config.load import Loaded


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="streams-groups", prog_name="streams-groups")
def main() -> None:
    """The state of every Kafka streams group, decoded from __consumer_offsets into Delta tables."""


main.add_command(config)
main.add_command(decode)
main.add_command(verify)
main.add_command(alerts)
main.add_command(status)


@main.command()
@governed
@click.option("--once", is_flag=True, help="Process what is there, then exit.")
@click.option("--reset", is_flag=True, help="Drop this cluster's groups and read from the beginning; history stays.")
@explained
def run(loaded: Loaded, once: bool, reset: bool) -> None:
    """Run the job: read the offsets topic, keep the tables. SIGTERM or Ctrl-C ends it cleanly."""
    if loaded.settings.bootstrap_server is None:
        refuse_without_server()
    from streaming_app.job.run import JobConfig  # noqa: PLC0415 - --help needs none of these
    from streaming_app.job.run import run as run_job  # noqa: PLC0415

    run_job(JobConfig(once=once, reset=reset, **dict(loaded.settings)), _say)


@main.command()
@located
@click.option("--seconds", default=0.0, type=click.FloatRange(min=0), help="Keep the groups living this much longer.")
@explained
def demo(warehouse: Place, cluster: str, seconds: float) -> None:
    """Start a local real broker, groups that live on it and the job; print the tables; stop all of it."""
    from streaming_app.demo.show import show  # noqa: PLC0415 - --help needs none of these

    show(warehouse, cluster, _say, extra_seconds=seconds)


@main.command("list")
@located
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[STATE,...]",
    help="Show states; only the named ones, if any.",
)
@explained
def list_groups(warehouse: Place, cluster: str, states: str | None) -> None:
    """List the streams groups, like kafka-streams-groups.sh --list."""
    from streaming_app.serve import groups, printing  # noqa: PLC0415 - --help needs none of these

    rows = groups.listed(_opened(warehouse), cluster, [state for state in (states or "").split(",") if state.strip()])
    if states is None:
        _print_lines(printing.cell(row["GROUP"]) for row in rows)
    else:
        _print_lines([printing.columns(rows)] if rows else [])


@main.command()
@located
@click.option("--group", "group_ids", multiple=True, metavar="GROUP", help="A group; may be given more than once.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--state", "aspect", flag_value="state", default="state", help="State and epochs (the default).")
@click.option("--members", "aspect", flag_value="members", help="Members and their tasks.")
@click.option("--topology", "aspect", flag_value="topology", help="Subtopologies and their topics.")
@click.option("--verbose", is_flag=True, help="More columns.")
@click.option("--json", "as_json", is_flag=True, help="Everything known, as JSON.")
@explained
def describe(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Place,
    cluster: str,
    group_ids: tuple[str, ...],
    all_groups: bool,
    aspect: str,
    verbose: bool,
    as_json: bool,
) -> None:
    """Describe streams groups, like kafka-streams-groups.sh --describe."""
    from streaming_app.serve import groups, printing  # noqa: PLC0415 - --help needs none of these

    if bool(group_ids) == all_groups:
        raise click.UsageError("Give --group GROUP, once or more, or --all-groups.")
    rows = groups.found(_opened(warehouse), cluster, None if all_groups else group_ids)
    if as_json:
        _print_lines([printing.as_json([{k: v for k, v in row.items() if k != "last_changes"} for row in rows])])
    else:
        table = groups.ASPECTS[aspect](rows, verbose=verbose)
        _print_lines([printing.columns(table)] if table else [])


@main.command()
@located
@click.argument("query")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@explained
def sql(warehouse: Place, cluster: str, query: str, form: str) -> None:  # noqa: ARG001 - a query names its clusters itself
    """Answer a SQL QUERY (DataFusion's dialect) over the tables and views."""
    from rich.console import Console  # noqa: PLC0415 - --help needs none of these

    from streaming_app.serve import printing  # noqa: PLC0415

    opened = _opened(warehouse)
    names, rows = opened.answer(query)
    if form == "json":
        _print_lines([printing.as_json(rows)])
    elif form == "csv":
        click.echo(printing.as_csv(names, rows), nl=False)
    else:
        console = Console(soft_wrap=not sys.stdout.isatty())
        console.print(printing.box(names, rows))
        console.print(f"{len(rows)} rows", style="dim")


def _opened(place: Place) -> Any:  # noqa: ANN401 - a Warehouse, which --help does not load
    from streaming_app.serve.warehouse import Warehouse  # noqa: PLC0415

    return Warehouse(place)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


_say: Callable[[str], None] = click.echo

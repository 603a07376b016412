"""`streams-groups list`: the groups, their types and states."""

from __future__ import annotations

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.cli.warehouse import open_cluster
from streaming_app.tables.location import Location


@click.command("list")
@warehouse_options
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[STATE,...]",
    help="Show the state of each group; with STATE, only groups in one of these states.",
)
@click.option(
    "--type",
    "types",
    default=None,
    metavar="all|TYPE,...",
    help="List groups of these types with their protocols: streams, consumer, classic, share.",
)
@handle_errors
def list_groups(warehouse: Location, cluster: str, states: str | None, types: str | None) -> None:
    """List the streams groups, like kafka-streams-groups.sh --list; with --type others, like kafka-groups.sh --list."""
    from streaming_app.queries import groups, output  # noqa: PLC0415 - not loaded by --help

    wanted = [state for state in (states or "").split(",") if state.strip()]
    if types is not None:
        reader = open_cluster(warehouse, cluster)
        found = groups.list_all_groups(reader, cluster, types.split(","), None if states is None else wanted)
        if found:
            click.echo(output.columns(found))
        return
    rows = groups.list_groups(open_cluster(warehouse, cluster), cluster, wanted)
    if states is None:
        for row in rows:
            click.echo(output.cell(row["GROUP"]))
    elif rows:
        click.echo(output.columns(rows))

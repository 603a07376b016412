"""`streams-groups diff`: what changed between two topologies of a group."""

from __future__ import annotations

from datetime import datetime

import click

from streaming_app.cli.options import handle_errors, instant, warehouse_options
from streaming_app.cli.warehouse import open_cluster
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.option("--group", "group_id", required=True, metavar="GROUP", help="The group.")
@click.option(
    "--from",
    "since",
    type=instant(),
    metavar="TIME",
    help="Compare with the topology at this time, as 2026-03-14T03:12Z or as 2h for two hours ago; by default with the "
    "one before the newest.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@handle_errors
def diff(warehouse: Location, cluster: str, group_id: str, since: datetime | None, as_json: bool) -> None:
    """Show what was added to and taken away from the topology of a group, up to the newest."""
    from streaming_app.queries import output  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries.topology_diff import diff_topologies  # noqa: PLC0415

    found = diff_topologies(open_cluster(warehouse, cluster), cluster, group_id, since)
    if as_json:
        click.echo(output.as_json(found.to_json()))
        return
    for text in found.to_text():
        for line in text.split("\n"):
            click.echo(output.cell(line))

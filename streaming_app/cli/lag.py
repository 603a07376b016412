"""`streams-groups lag`: how far behind groups, tasks, members, processes, hosts, topics or partitions are."""

from __future__ import annotations

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.cli.warehouse import open_cluster
from streaming_app.lag.sums import KEYS
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.option("--group", "group_ids", multiple=True, metavar="GROUP", help="Only this group; may be given repeatedly.")
@click.option("--by", type=click.Choice(list(KEYS)), default="group", show_default=True, help="What lag is summed by.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N largest.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@handle_errors
def lag(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    group_ids: tuple[str, ...],
    by: str,
    top: int | None,
    as_json: bool,
) -> None:
    """Show the lag of committed offsets, the largest first, in offsets and in seconds."""
    from streaming_app.queries import lag as queries  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries import output  # noqa: PLC0415

    sums = queries.find_lag(open_cluster(warehouse, cluster), cluster, group_ids, by)[:top]
    if as_json:
        click.echo(output.as_json([queries.to_json(one, by) for one in sums]))
    elif sums:
        click.echo(output.columns([queries.to_row(one, by) for one in sums]))

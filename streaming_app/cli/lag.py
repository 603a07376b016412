"""The command `lag`: how far behind groups are with what they commit."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from streaming_app.cli.options import group_options, handle_errors, warehouse_options
from streaming_app.cli.printing import echo_json, echo_rows, json_option
from streaming_app.cli.warehouse import open_cluster
from streaming_app.tables.location import Location

_BY = {
    "group": ("group_id",),
    "subtopology": ("group_id", "subtopology_id"),
    "task": ("group_id", "task_id", "member_id", "client_host"),
    "member": ("group_id", "member_id", "client_host"),
    "process": ("group_id", "process_id", "client_host"),
    "host": ("client_host",),
    "topic": ("group_id", "topic"),
    "partition": ("group_id", "topic", "partition"),
}
"""What lag is summed by, and the columns of it that are printed; of a task, some follow from the others."""


@click.command(short_help="Show the lag of committed offsets.")
@warehouse_options
@group_options
@click.option("--by", type=click.Choice(list(_BY)), default="group", show_default=True, help="Sum the lag by this.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Print only the N largest.")
@json_option
@handle_errors
def lag(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    group_ids: tuple[str, ...],
    by: str,
    top: int | None,
    as_json: bool,
) -> None:
    """Show the lag of committed offsets, of each GROUP or of all, the largest first, in offsets and in seconds."""
    from streaming_app.queries.lag import find_lag, to_json, to_row  # noqa: PLC0415 - not loaded by --help

    sums = find_lag(open_cluster(warehouse, cluster, "lag", "inputs"), cluster, group_ids, _BY[by])[:top]
    if as_json:
        echo_json([to_json(one) for one in sums])
    else:
        now = datetime.now(timezone.utc)
        echo_rows([to_row(one, _BY[by], now) for one in sums])

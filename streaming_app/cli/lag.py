"""The command `lag`: how far behind groups are with what they commit."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from streaming_app.cli.options import group_options, handle_errors, warehouse_options
from streaming_app.cli.printing import echo_json, echo_rows, json_option
from streaming_app.cli.warehouse import open_cluster
from streaming_app.lag.model import KEYS
from streaming_app.tables.location import Location


@click.command(short_help="Show the lag of committed offsets.")
@warehouse_options
@group_options
@click.option("--by", type=click.Choice(list(KEYS)), default="group", show_default=True, help="What lag is summed by.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N largest.")
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
    from streaming_app.queries.lag import find_lag, to_row  # noqa: PLC0415 - not loaded by --help

    sums = find_lag(open_cluster(warehouse, cluster, "lag", "inputs"), cluster, group_ids, by)[:top]
    if as_json:
        echo_json(sums)
    else:
        now = datetime.now(timezone.utc)
        echo_rows([to_row(one, by, now) for one in sums])

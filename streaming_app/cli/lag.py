"""The commands about how far behind groups are: `lag` of what they commit, and `copies` of their tasks."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from streaming_app.cli.options import group_option, handle_errors, warehouse_options
from streaming_app.cli.printing import echo, echo_error, echo_json, echo_more, echo_rows, json_option
from streaming_app.cli.warehouse import open_cluster
from streaming_app.lag.sums import KEYS
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.option("--group", "group_ids", multiple=True, metavar="GROUP", help="Only this group; may be given repeatedly.")
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
    """Show the lag of committed offsets, the largest first, in offsets and in seconds."""
    from streaming_app.queries.lag import find_lag, to_json, to_row  # noqa: PLC0415 - not loaded by --help

    sums = find_lag(open_cluster(warehouse, cluster, "lag", "inputs"), cluster, group_ids, by)[:top]
    if as_json:
        echo_json([to_json(one, by) for one in sums])
    else:
        now = datetime.now(timezone.utc)
        echo_rows([to_row(one, by, now) for one in sums])


@click.command()
@warehouse_options
@group_option
@json_option
@handle_errors
def copies(warehouse: Location, cluster: str, group_id: str, as_json: bool) -> None:
    """Show the copies of each task of a group, and which processes may be stopped now without a restore."""
    from streaming_app.queries.copies import read_report  # noqa: PLC0415 - not loaded by --help

    report = read_report(open_cluster(warehouse, cluster), cluster, group_id)
    if as_json:
        echo_json(report.to_json())
    elif report.copies:
        echo_rows(report.copy_rows())
        echo_more(report.process_rows())
    else:
        echo(f"{group_id} is {report.state}: no member has a task.")
    if report.lacks_offsets:
        echo_error(report.brokers.why_no_offsets())

"""The command `why`."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from streaming_app.cli.options import handle_errors, one_group_option, warehouse_options
from streaming_app.cli.printing import echo, echo_json, json_option
from streaming_app.cli.warehouse import open_cluster
from streaming_app.errors import WarehouseError
from streaming_app.tables.location import Location


@click.command(short_help="Say whether and why a group processes or not.")
@warehouse_options
@one_group_option
@json_option
@handle_errors
def why(warehouse: Location, cluster: str, group_id: str, as_json: bool) -> None:
    """Say whether a group processes what it should, and if not, since when, why, and what will be lost."""
    from streaming_app.queries import health  # noqa: PLC0415 - not loaded by --help
    from streaming_app.tables.alerts_table import to_json  # noqa: PLC0415

    reader = open_cluster(warehouse, cluster)
    row = health.read_verdicts(reader, cluster, [group_id]).get(group_id)
    if row is None:
        raise WarehouseError(f"There is no verdict on a group {group_id!r} in cluster {cluster!r}")
    problem = health.problem_with(reader, cluster, group_id)
    times = health.stream_time(reader, cluster, group_id)
    if as_json:
        echo_json(row | times | {"alert": problem and to_json(problem)})
        return
    deployment = health.deployment_lines(reader, cluster, [group_id]).get(group_id)
    for line in health.explain(row, problem, deployment, datetime.now(timezone.utc), times):
        echo(line)

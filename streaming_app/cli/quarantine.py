"""The command `quarantine release`: the job reads the records of a group again that is set aside."""

from __future__ import annotations

import click

from streaming_app.cli.options import handle_errors, one_group_option, warehouse_options
from streaming_app.cli.printing import echo
from streaming_app.cli.warehouse import open_cluster
from streaming_app.tables.location import Location


@click.group()
def quarantine() -> None:
    """Release a group that is set aside; `status` and the tables `groups` and `quarantine` show what is."""


@quarantine.command()
@warehouse_options
@one_group_option
@handle_errors
def release(warehouse: Location, cluster: str, group_id: str) -> None:
    """Let the running job read the records of a group again that is set aside."""
    from streaming_app.errors import WarehouseError  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries.groups import groups_set_aside  # noqa: PLC0415
    from streaming_app.tables.request_files import ReleaseRequests  # noqa: PLC0415

    if group_id not in {row["group"] for row in groups_set_aside(open_cluster(warehouse, cluster), cluster)}:
        raise WarehouseError(f"Group {group_id!r} is not set aside: `streams-groups status` shows those that are")
    ReleaseRequests(warehouse, cluster).add(group_id)
    echo(f"The job will read the records of {group_id} again within a minute.")

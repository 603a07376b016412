"""The command `quarantine`: groups and records that are set aside, and a group's release."""

from __future__ import annotations

import click

from streaming_app.cli.options import group_option, handle_errors, warehouse_options
from streaming_app.cli.printing import echo, echo_json, echo_rows, json_option
from streaming_app.cli.warehouse import open_cluster
from streaming_app.tables.location import Location

_RECORDS = 20


@click.group(invoke_without_command=True)
@warehouse_options
@json_option
@click.pass_context
def quarantine(context: click.Context, warehouse: Location, cluster: str, as_json: bool) -> None:
    """Show what is set aside, so that all other groups go on; `release` tries a group again."""
    if context.invoked_subcommand is None:
        context.invoke(show, warehouse=warehouse, cluster=cluster, as_json=as_json)


@quarantine.command("list")
@warehouse_options
@json_option
@handle_errors
def show(warehouse: Location, cluster: str, as_json: bool) -> None:
    """Show the groups that are set aside, and the newest records that could not be decoded or folded."""
    from streaming_app.queries.groups import groups_set_aside, quarantined_records  # noqa: PLC0415 - not loaded by --help

    reader = open_cluster(warehouse, cluster)
    groups, records = groups_set_aside(reader, cluster), quarantined_records(reader, cluster)
    if as_json:
        echo_json({"groups": groups, "records": records})
        return
    if not groups:
        click.echo("No group is set aside.")
    for found in (groups, records[:_RECORDS]):
        if found:
            echo_rows([{name.upper(): value for name, value in row.items()} for row in found])
    if len(records) > _RECORDS:
        echo(f"{len(records):,} kinds of records; --json shows all of them.")


@quarantine.command()
@warehouse_options
@group_option
@handle_errors
def release(warehouse: Location, cluster: str, group_id: str) -> None:
    """Let the running job read the records of a group again that is set aside."""
    from streaming_app.errors import WarehouseError  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries.groups import groups_set_aside  # noqa: PLC0415
    from streaming_app.tables.request_files import ReleaseRequests  # noqa: PLC0415

    if group_id not in {row["group"] for row in groups_set_aside(open_cluster(warehouse, cluster), cluster)}:
        raise WarehouseError(f"Group {group_id!r} is not set aside: `streams-groups quarantine` shows those that are")
    ReleaseRequests(warehouse, cluster).add(group_id)
    echo(f"The job will read the records of {group_id} again within a minute.")

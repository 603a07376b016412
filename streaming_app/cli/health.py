"""The commands about whether groups process: `why`, `incidents`."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from streaming_app.cli.options import handle_errors, past_group_option, warehouse_options
from streaming_app.cli.printing import echo, echo_json, echo_rows, json_option
from streaming_app.cli.process import user_name
from streaming_app.cli.warehouse import open_cluster
from streaming_app.errors import WarehouseError
from streaming_app.tables.location import Location

_incident_option = click.option(
    "--incident", "incident_id", required=True, metavar="ID", help="The incident, as `incidents` lists it."
)


@click.command()
@warehouse_options
@past_group_option
@json_option
@handle_errors
def why(warehouse: Location, cluster: str, group_id: str, as_json: bool) -> None:
    """Say whether a group processes what it should, and if not, since when, why, and what will be lost."""
    from streaming_app.queries import health  # noqa: PLC0415 - not loaded by --help

    reader = open_cluster(warehouse, cluster)
    row = health.read_verdicts(reader, cluster, [group_id]).get(group_id)
    if row is None:
        raise WarehouseError(f"There is no verdict on a group {group_id!r} in cluster {cluster!r}")
    incidents = health.find_incidents(reader, cluster, {}, with_ended=True)
    incident = health.incident_of(row, incidents)
    if as_json:
        echo_json(health.health_json(row) | {"incident": incident and health.incident_json(incident)})
        return
    deployment = health.deployment_lines(reader, cluster, [group_id]).get(group_id)
    for line in health.explain(row, incident, deployment, datetime.now(timezone.utc)):
        echo(line)


@click.group(invoke_without_command=True)
@warehouse_options
@click.option("--all", "with_ended", is_flag=True, help="Also those that ended.")
@json_option
@click.pass_context
@handle_errors
def incidents(context: click.Context, warehouse: Location, cluster: str, with_ended: bool, as_json: bool) -> None:
    """List the open incidents: one for each cause, with the groups that it concerns."""
    from streaming_app.queries import health  # noqa: PLC0415 - not loaded by --help
    from streaming_app.tables.health_tables import EndedIncidents  # noqa: PLC0415

    if context.invoked_subcommand is not None:
        return
    reader = open_cluster(warehouse, cluster, "incidents", "groups")
    ended = EndedIncidents(warehouse, cluster).reasons()
    found = health.find_incidents(reader, cluster, ended, with_ended=with_ended)
    if as_json:
        echo_json([health.incident_json(one) for one in found])
    elif found:
        echo_rows(health.incident_rows(found))
    else:
        click.echo("No incidents.")


@incidents.command()
@warehouse_options
@_incident_option
@click.option(
    "--reason",
    type=click.Choice(["retired", "planned"]),
    required=True,
    help="Nobody runs the group any more, or it is meant to be so.",
)
@handle_errors
def end(warehouse: Location, cluster: str, incident_id: str, reason: str) -> None:
    """End an incident. The job notes it at its next evaluation, and says so where it sent alerts."""
    from streaming_app.queries import health  # noqa: PLC0415 - not loaded by --help
    from streaming_app.tables.health_tables import EndedIncidents  # noqa: PLC0415

    files = EndedIncidents(warehouse, cluster)
    open_ones = health.find_incidents(open_cluster(warehouse, cluster), cluster, files.reasons(), with_ended=False)
    if incident_id not in {one.incident_id for one in open_ones}:
        raise WarehouseError(f"No open incident {incident_id!r}: `streams-groups incidents` lists them")
    files.end(incident_id, reason, user_name(), datetime.now(timezone.utc))
    echo(f"{incident_id} has ended: {reason}.")

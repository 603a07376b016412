"""`streams-groups describe`: the state, the members, the topology or the committed offsets of groups.

Only the topology description comes from the brokers: the tables do not hold it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streaming_app.cli.options import handle_errors, optional_broker_options, warehouse_options
from streaming_app.cli.warehouse import open_cluster
from streaming_app.tables.location import Location
from streaming_app.text import count


@click.command()
@optional_broker_options("description")
@warehouse_options
@click.option("--group", "group_ids", multiple=True, metavar="GROUP", help="A group; may be given more than once.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--state", "aspect", flag_value="state", default="state", help="State and epochs (the default).")
@click.option("--members", "aspect", flag_value="members", help="Members and their tasks.")
@click.option("--topology", "aspect", flag_value="topology", help="Subtopologies and their topics.")
@click.option("--offsets", "aspect", flag_value="offsets", help="Committed offsets and lag, of groups of any type.")
@click.option(
    "--description",
    is_flag=True,
    help="With --topology: the description that the brokers store, as Topology#describe() prints it.",
)
@click.option("--verbose", is_flag=True, help="More columns; with --state also which members a rebalance waits for.")
@click.option("--json", "as_json", is_flag=True, help="Everything known, as JSON.")
@handle_errors
def describe(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    group_ids: tuple[str, ...],
    all_groups: bool,
    aspect: str,
    description: bool,
    verbose: bool,
    as_json: bool,
    bootstrap_server: str | None,
    command_config: Path | None,
) -> None:
    """Describe streams groups, like kafka-streams-groups.sh --describe."""
    from streaming_app.queries import groups, lag, output  # noqa: PLC0415 - not loaded by --help

    if bool(group_ids) == all_groups:
        raise click.UsageError("Give --group GROUP, once or more, or --all-groups.")
    if description and (aspect != "topology" or len(group_ids) != 1):
        raise click.UsageError("--description belongs to --topology and one --group GROUP.")
    if description:
        _print_description(group_ids[0], bootstrap_server or "", command_config, as_json=as_json)
        return
    if aspect == "offsets":
        offsets = lag.find_offsets(open_cluster(warehouse, cluster), cluster, None if all_groups else group_ids)
        if as_json:
            click.echo(output.as_json(offsets))
        elif offsets:
            click.echo(output.columns(lag.offset_rows(offsets, verbose=verbose)))
        return
    rows = groups.find_groups(open_cluster(warehouse, cluster), cluster, None if all_groups else group_ids)
    if as_json:
        shown = ({name: value for name, value in row.items() if name != "last_changes"} for row in rows)
        click.echo(output.as_json([row | {"waits_for": groups.waits_for(row)} for row in shown]))
    elif table := groups.ASPECTS[aspect](rows, verbose=verbose):
        click.echo(output.columns(table))
        if verbose and aspect == "state":
            _print_awaited(rows)


def _print_awaited(rows: list[dict[str, Any]]) -> None:
    """Print which members the groups wait for."""
    from streaming_app.queries import groups, output  # noqa: PLC0415 - not loaded by --help

    if awaited := groups.awaited_rows(rows):
        click.echo("\n" + output.columns(awaited))
    for group_id, number in groups.not_named(rows):
        members = f"{count(number, 'more member is', 'more members are')} not settled"
        click.echo(output.cell(f"{group_id}: {members}; --members --verbose shows all."))


def _print_description(group_id: str, bootstrap_server: str, command_config: Path | None, *, as_json: bool) -> None:
    """Print the description that the brokers store. Exits with 1, after a line that says why, if there is none."""
    from streaming_app.groups.topology_description import AVAILABLE, STATUSES, describe_topology  # noqa: PLC0415
    from streaming_app.kafka.client import StreamsGroupClient  # noqa: PLC0415
    from streaming_app.kafka.error_lines import errors_as_lines  # noqa: PLC0415
    from streaming_app.kafka.properties import client_properties  # noqa: PLC0415
    from streaming_app.kafka.protocol import raise_for_code  # noqa: PLC0415
    from streaming_app.queries import output  # noqa: PLC0415
    from streaming_app.text import escape  # noqa: PLC0415 - not loaded by --help

    properties = client_properties(bootstrap_server, command_config)
    with errors_as_lines(properties, "describe needs Describe on the group"):
        with StreamsGroupClient.of(properties) as client:
            (group,) = client.describe([group_id], include_topology_description=True)
        raise_for_code(group["error_code"], group["error_message"])
    status = group.get("topology_description_status", 0)  # a broker before Kafka 4.4 has no such field
    stored = group.get("topology_description") if status == AVAILABLE else None
    name, words = STATUSES.get(status, (f"UNKNOWN_{status}", "this release does not know what the broker says of it"))
    if as_json:
        click.echo(output.as_json({"group_id": group_id, "status": name, "description": stored}))
    elif stored is not None:
        for line in describe_topology(stored).split("\n")[:-1]:
            click.echo(escape(line))
    if stored is None:
        raise click.ClickException(f"No topology description of {group_id}: {words} ({name})")

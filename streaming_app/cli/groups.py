"""The commands about the current state of some groups: `describe` and `why`.

Everything that they print comes from the tables.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta, timezone

import click

from streaming_app.cli.options import group_options, one_group_option, warehouse_options
from streaming_app.cli.printing import echo, echo_either, echo_error, echo_json, echo_more, echo_rows, json_option
from streaming_app.cli.warehouse import explain_unknown, open_cluster
from streaming_app.errors import WarehouseError
from streaming_app.groups.state_rules import EMPTY
from streaming_app.queries import described, group_facts, health, history, stores, topics
from streaming_app.queries.broker_releases import read_brokers
from streaming_app.queries.copies import copy_rows, lacks_offsets, process_rows, read_reports
from streaming_app.queries.lag import find_offsets, offset_rows
from streaming_app.tables import alerts_table
from streaming_app.tables.location import Location
from streaming_app.tables.reader import Row, WarehouseReader
from streaming_app.text import count

_OF_ANY_TYPE = ("groups", "group_records", "offset_commits", "broker_facts")
_ACTS_SHOWN = timedelta(days=7)
_OVERVIEW = ("group_events", "group_health", "group_records", "groups", "inputs", "lag", "offset_commits")
_READ_FOR = {"state": (*_OF_ANY_TYPE, "group_health", "group_events"), "members": _OF_ANY_TYPE}
"""Option of `describe` -> the tables that it reads for named groups."""


@click.command
@warehouse_options()
@group_options
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option(
    "--state", "aspect", flag_value="state", help="Coordinator, state, and with --verbose epochs and configs."
)
@click.option("--members", "aspect", flag_value="members", help="Members and their tasks.")
@click.option("--topology", "aspect", flag_value="topology", help="Subtopologies and their topics.")
@click.option(
    "--offsets",
    "aspect",
    flag_value="offsets",
    default=None,
    help="Committed offsets and lag, for groups of any type. By default the verdict comes first.",
)
@click.option(
    "--copies",
    "aspect",
    flag_value="copies",
    help="The copies of each task, and which processes you may stop now without a restore.",
)
@click.option(
    "--stores",
    "store",
    metavar="[NAME]",
    is_flag=False,
    flag_value="",
    help="The stores, or those with this name, and which instance has which partition of them. Write it after GROUP.",
)
@click.option(
    "--description",
    is_flag=True,
    help="The stored topology description that the job fetched last, as Kafka's own tool prints it.",
)
@click.option("--verbose", is_flag=True, help="More columns; with --state also which members a rebalance waits for.")
@click.option("--json", "as_json", is_flag=True, help="Everything known, as JSON.")
def describe(  # noqa: C901, PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    group_ids: tuple[str, ...],
    all_groups: bool,
    aspect: str | None,
    store: str | None,
    description: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Describe streams groups, like kafka-streams-groups.sh --describe."""
    if bool(group_ids) == all_groups:
        hint = f" {store!r} was read as the name of a store: write --stores after GROUP." if store else ""
        raise click.UsageError(f"Give GROUP, once or more, or --all-groups.{hint}")
    if description and (aspect not in {None, "topology"} or len(group_ids) != 1):
        raise click.UsageError("--description belongs to --topology and one GROUP.")
    if store is not None and (aspect or description):
        raise click.UsageError("--stores goes with no other part of a group.")
    wanted = group_ids or None
    if description:
        _print_description(open_cluster(warehouse, cluster), cluster, group_ids[0], as_json=as_json)
        return
    if store is not None:
        _print_stores(open_cluster(warehouse, cluster), cluster, wanted, store, as_json=as_json)
        return
    if aspect is None and not as_json:
        _print_overview(open_cluster(warehouse, cluster, *_OVERVIEW), cluster, wanted, verbose=verbose)
        return
    whole, aspect = ("lag",) if aspect is None else (), aspect or "state"  # all of it, as JSON
    reader = open_cluster(warehouse, cluster, *(_READ_FOR.get(aspect, ()) if group_ids else ()), *whole)
    others = _others(reader, cluster, group_ids, aspect)
    if aspect == "offsets":
        found = find_offsets(reader, cluster, wanted)
        echo_either(found, offset_rows(found, verbose=verbose), as_json=as_json)
    elif others and others.keys() == {*group_ids}:
        _print_others(reader, cluster, [*others.values()], aspect, as_json=as_json)
    else:
        rows = described.find_groups(reader, cluster, wanted, with_classic=aspect != "state")
        if aspect == "copies":
            _print_copies(reader, cluster, rows, as_json=as_json)
        elif as_json:
            _print_json(reader, cluster, rows)
        elif rows:
            _SHOW[aspect](reader, cluster, rows, verbose=verbose, is_named=not all_groups)


def _others(reader: WarehouseReader, cluster: str, group_ids: Collection[str], aspect: str) -> dict[str, Row]:
    """Return the named groups that are shown as any other type of group is."""
    others = described.other_groups(reader, cluster, group_ids) if aspect in _READ_FOR else {}
    with_tasks = described.with_tasks(reader, cluster, others) if aspect == "members" else set()
    return {group_id: row for group_id, row in others.items() if group_id not in with_tasks}


def _print_others(reader: WarehouseReader, cluster: str, others: list[Row], aspect: str, *, as_json: bool) -> None:
    if aspect == "members":
        types = [(row["group_id"], row["group_type"]) for row in others]
        others = table = described.other_members(reader, cluster, types)
    else:
        known = group_facts.read_group_facts(reader, cluster, [row["group_id"] for row in others])
        others = [{**row, "coordinator": known[row["group_id"]]["coordinator"]} for row in others]
        table = described.other_state_rows(others)
    echo_either(others, table, as_json=as_json)


def _print_overview(reader: WarehouseReader, cluster: str, group_ids: Collection[str] | None, *, verbose: bool) -> None:
    ids = group_ids or [row["group_id"] for row in described.find_groups(reader, cluster, None)]
    offsets = find_offsets(reader, cluster, ids) if ids else []
    for group_id in sorted({*ids} - _print_verdicts(reader, cluster, ids) - {row["group_id"] for row in offsets}):
        echo(f"{group_id} has no verdict and no committed offsets: see --state.")
    echo_rows(offset_rows(offsets, verbose=verbose))


def _print_verdicts(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> set[str]:
    """Print the verdicts on groups. Return the groups that have one."""
    verdicts = health.read_verdicts(reader, cluster, group_ids)
    for line in health.lines(verdicts.values(), health.deployment_lines(reader, cluster, group_ids)):
        echo(line)
    return {*verdicts}


def _print_members(reader: WarehouseReader, cluster: str, rows: list[Row], *, verbose: bool, **_: bool) -> None:
    echo_rows(members := described.member_rows(rows, verbose=verbose))
    if members and verbose:
        echo_more(topics.endpoint_rows(rows, topics.read_topics(reader, cluster, rows)))


def _print_topology(reader: WarehouseReader, cluster: str, rows: list[Row], *, verbose: bool, **_: bool) -> None:
    echo_rows(parts := described.topology_rows(rows, verbose=verbose))
    if parts and verbose:
        echo_more(topics.topic_rows(topics.read_topics(reader, cluster, rows)))
    if parts:
        for find in (group_facts.differing_topics, group_facts.unwritable_sinks):
            echo_more(find(reader, cluster, [row["group_id"] for row in rows]))


def _print_copies(reader: WarehouseReader, cluster: str, rows: list[Row], *, as_json: bool) -> None:
    """Print the copies of the tasks of groups, and which processes may be stopped now without a restore."""
    reports = read_reports(reader, cluster, rows)
    if as_json:
        echo_json(reports)
    else:
        for report in (one for one in reports if not one["copies"]):
            echo(f"{report['group_id']} is {report['state']}: no member has a task.")
        echo_rows([row for report in reports for row in copy_rows(report)])
        echo_more([row for report in reports for row in process_rows(report)])
    if any(map(lacks_offsets, reports)):
        echo_error(read_brokers(reader, cluster).why_no_offsets())


def _print_stores(
    reader: WarehouseReader, cluster: str, group_ids: Collection[str] | None, name: str, *, as_json: bool
) -> None:
    groups = described.find_groups(reader, cluster, group_ids, with_classic=True)
    found = stores.read_stores(reader, cluster, groups, name)
    echo_either(found, stores.store_rows(found), as_json=as_json)
    for line in stores.notes(groups, found):
        echo_error(line)


def _print_json(reader: WarehouseReader, cluster: str, rows: list[Row]) -> None:
    ids = [row["group_id"] for row in rows]
    known, verdicts = group_facts.read_group_facts(reader, cluster, ids), health.read_verdicts(reader, cluster, ids)
    of_topologies = topics.read_topics(reader, cluster, rows)
    echo_json(
        [
            {
                **{name: value for name, value in row.items() if name not in {"last_changes", "known_before"}},
                "topics": [one._asdict() for one in of_topologies[group_id]],
                "waits_for": described.waits_for(row),
                "verdict": verdicts.get(group_id),
                **known[group_id],
            }
            for group_id, row in zip(ids, rows, strict=True)
        ]
    )


def _print_states(reader: WarehouseReader, cluster: str, rows: list[Row], *, verbose: bool, is_named: bool) -> None:
    """Print verdicts and states, and why a state is Unknown.

    With `verbose` also the members that rebalances wait for, and of groups that the user named configs, and when
    offsets of Empty ones expire.
    """
    ids = [row["group_id"] for row in rows]
    known = group_facts.read_group_facts(reader, cluster, ids)
    _print_verdicts(reader, cluster, ids)
    echo_rows(described.state_rows(rows, known, verbose=verbose))
    if verbose:
        echo_more(described.awaited_rows(rows))
        for group_id, number in described.not_named(rows):
            members = f"{count(number, 'more member is', 'more members are')} not settled"
            echo(f"{group_id}: {members}; --members --verbose shows all.")
    if verbose and is_named:
        brokers, empty = read_brokers(reader, cluster), [row["group_id"] for row in rows if row["state"] == EMPTY]
        echo_more(group_facts.config_rows(known, brokers))
        for line in group_facts.expiry_lines(reader, cluster, empty, brokers):
            echo(line)
    explain_unknown(reader, cluster, {row["state"] for row in rows})


def _print_description(reader: WarehouseReader, cluster: str, group_id: str, *, as_json: bool) -> None:
    """Print the description that the job fetched last. If there is none, print why, and exit with 1."""
    found = group_facts.find_description(reader, cluster, group_id)
    if as_json:
        echo_json(found)
        return
    if found["text"] is None:
        nodes = f"{found['node_count']:,} nodes"
        raise WarehouseError(f"The description has {nodes}, too many to print: see the view description_nodes")
    for line in found["text"].split("\n")[:-1]:
        echo(line)
    echo_error(group_facts.description_origin(found))


_SHOW: Mapping[str, Callable[..., None]] = {
    "state": _print_states,
    "members": _print_members,
    "topology": _print_topology,
}


@click.command
@warehouse_options()
@one_group_option
@json_option
def why(warehouse: Location, cluster: str, group_id: str, as_json: bool) -> None:
    """Explain whether a group processes its input, and if not, since when, why, what will be lost, and what to do."""
    reader = open_cluster(warehouse, cluster, "group_health", "lag_sums", "group_events")
    row = health.read_verdicts(reader, cluster, [group_id]).get(group_id)
    alert = health.alert_with(reader, cluster, group_id)
    deleted = None if row else health.deletion(reader, cluster, group_id)
    if row:
        times = health.lag_times(reader, cluster, group_id)
        now = datetime.now(timezone.utc)
        happened = [health.deployment_lines(reader, cluster, [group_id]).get(group_id)]
        happened.append(history.act_line(reader, cluster, group_id, now - _ACTS_SHOWN))
        known, lines = row | times, health.explain(row, alert, happened, now, times)
    elif deleted:
        known = {"group_id": group_id, "verdict": None, **deleted}
        lines = health.explain_deleted(group_id, deleted, alert)
    else:
        raise WarehouseError(
            f"There is no verdict on a group {group_id!r} in cluster {cluster!r}: "
            "`streams-groups list` shows all groups with a verdict"
        )
    if as_json:
        echo_json(known | {"alert": alert and alerts_table.to_json(alert)})
    else:
        for line in lines:
            echo(line)

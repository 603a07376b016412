"""The command `history`: what happened to a group, and its state at a time in the past."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from streaming_app.cli.options import instant, one_group_option, warehouse_options
from streaming_app.cli.printing import echo, echo_json, echo_more, echo_rows, json_option
from streaming_app.cli.warehouse import open_cluster
from streaming_app.errors import WarehouseError
from streaming_app.queries import history as answers
from streaming_app.queries import topology_diff
from streaming_app.queries.protocol_changes import read_changes
from streaming_app.tables.location import Location
from streaming_app.tables.reader import Row, WarehouseReader


@click.command
@warehouse_options()
@one_group_option
@click.option("--task", metavar="TASK", help="Show who had this task, such as 0_3, and when.")
@click.option("--member", metavar="MEMBER", help="Show only this member; a member id or an instance id.")
@click.option(
    "--at",
    "time",
    type=instant(),
    metavar="TIME",
    help="Show the group as it was at this time: 2026-03-14T03:12Z, or 10m for ten minutes ago.",
)
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(min=1),
    help="Print at most so many of the newest lines; with --topology so many changes.",
)
@click.option("--topology", is_flag=True, help="Show the changes of the newest topology since the one before.")
@click.option(
    "--from",
    "since",
    type=instant(),
    metavar="TIME",
    help="With --topology: compare the newest with the topology at this time.",
)
@json_option
def history(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    group_id: str,
    task: str | None,
    member: str | None,
    time: datetime | None,
    limit: int,
    topology: bool,
    since: datetime | None,
    as_json: bool,
) -> None:
    """Show what happened to a group: states, epochs, members and their tasks, the oldest first.

    If the group went from one protocol of Kafka Streams to the other, a second table has the steps of this migration.
    With --task, who had that task and when. With --at, the state, the members and their tasks at that time.
    With --topology, what changed between two topologies.
    """
    if topology and (task, member, time) != (None, None, None):
        raise click.UsageError("--topology goes without --task, --member and --at.")
    if since is not None and not topology:
        raise click.UsageError("--from belongs to --topology.")
    if topology:
        _print_changes(open_cluster(warehouse, cluster), cluster, group_id, since, limit, as_json=as_json)
        return
    if task is not None and not re.fullmatch(r"\d+_\d+", task):
        raise click.UsageError(f"--task must be SUBTOPOLOGY_PARTITION, such as 0_3, not {task!r}")
    reader = open_cluster(warehouse, cluster)
    events = answers.read_events(reader, cluster, group_id)
    if member is not None:
        events = _require(answers.events_of_member(events, member), f"Group {group_id!r} had no member {member!r}")
    if task is not None:
        spells = [
            one for one in answers.task_spells(events) if one["task"] == task and (not time or _covers(one, time))
        ]
        _require(spells, f"No member of group {group_id!r} had the task {task}" + ("" if time is None else " then"))
        as_data: Any = spells[-limit:]
        tables = [answers.titled(as_data)]
    elif time is not None:
        group = answers.group_at(events, time)
        members = [*group["members"].values()]
        tables = [[] if member else answers.group_rows(group), answers.titled(members)]
        values = {name: value for name, value in group.items() if name != "unowned"}
        as_data = {"group_id": group_id, "at": time, **values, "members": members}
    else:
        events = answers.add_waited(reader, cluster, group_id, events)
        changes = [] if member else read_changes(reader, cluster, group_id)
        tables = [answers.event_rows(events, limit), answers.titled(changes)]
        as_data = events[-limit:]
    if as_json:
        echo_json(as_data)
        return
    for number, rows in enumerate(filter(None, tables)):
        (echo_more if number else echo_rows)(rows)


def _print_changes(  # noqa: PLR0913 - what it needs
    reader: WarehouseReader, cluster: str, group_id: str, since: datetime | None, limit: int, *, as_json: bool
) -> None:
    found = topology_diff.diff_topologies(reader, cluster, group_id, since)
    if as_json:
        echo_json(topology_diff.to_json(found, limit))
        return
    for text in topology_diff.to_text(found, limit):
        for line in text.split("\n"):
            echo(line)


def _covers(spell: Row, time: datetime) -> bool:
    since, until = spell["since"], spell["until"]
    return (since is None or since <= time) and (until is None or time < until)


def _require(found: Sequence[Any], message: str) -> list[Row]:
    if not found:
        raise WarehouseError(message)
    return list(found)

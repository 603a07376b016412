"""`streams-groups history`: what happened to a group, and how it was at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from streaming_app.cli.options import handle_errors, instant, warehouse_options
from streaming_app.cli.warehouse import open_cluster
from streaming_app.errors import WarehouseError
from streaming_app.tables.location import Location

if TYPE_CHECKING:
    from streaming_app.queries.history import Event


@click.command()
@warehouse_options
@click.option("--group", "group_id", required=True, metavar="GROUP", help="The group; it may have been deleted.")
@click.option("--task", metavar="TASK", help="Who had this task, such as 0_3.")
@click.option("--member", metavar="MEMBER", help="Only this member: its member id or its instance id.")
@click.option(
    "--at",
    "time",
    type=instant(),
    metavar="TIME",
    help="How it was at this time: 2026-03-14T03:12Z, or 10m for ten minutes ago.",
)
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(min=1), help="How many of the newest lines."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@handle_errors
def history(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    group_id: str,
    task: str | None,
    member: str | None,
    time: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show what happened to a group: states, epochs, members and their tasks, the oldest first.

    With --task, who had that task and when. With --at, the state, the members and their tasks at that time.
    """
    from streaming_app.queries import history as answers  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries import output  # noqa: PLC0415

    try:
        task = None if task is None else answers.check_task(task)
    except ValueError as error:
        raise click.UsageError(f"--task {error}") from None
    events = answers.read_events(open_cluster(warehouse, cluster), cluster, group_id)
    if member is not None:
        events = _require(answers.events_of_member(events, member), f"Group {group_id!r} had no member {member!r}")
    if task is not None:
        spells = [spell for spell in answers.task_spells(events, task) if time is None or _covers(spell, time)]
        _require(spells, f"No member of group {group_id!r} had the task {task}" + ("" if time is None else " then"))
        tables = [list(answers.spell_rows(spells[-limit:]))]
        as_data: Any = [asdict(spell) for spell in spells[-limit:]]
    elif time is not None:
        group = answers.group_at(events, time)
        members = sorted(group.members.values(), key=lambda one: one.member_id)
        tables = [[] if member else [answers.group_rows(group)], list(answers.member_rows(members))]
        as_data = {"group_id": group_id, "at": time, **group.values, "deleted_at": group.deleted_at}
        as_data |= {"members": [asdict(one) for one in members]}
    else:
        tables = [list(answers.event_rows(events[-limit:]))]
        as_data = events[-limit:]
    if as_json:
        click.echo(output.as_json(as_data))
    else:
        for number, rows in enumerate(filter(None, tables)):
            if number:
                click.echo("")
            click.echo(output.columns(rows))


def _covers(spell: Any, time: datetime) -> bool:  # noqa: ANN401 - a TaskSpell, which --help does not load
    return (spell.since is None or spell.since <= time) and (spell.until is None or time < spell.until)


def _require(found: Sequence[Any], message: str) -> list[Event]:
    if not found:
        raise WarehouseError(message)
    return list(found)

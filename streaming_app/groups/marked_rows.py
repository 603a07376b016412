"""Keeps facts of a row whose group is read again: those that the row proves and that compaction took from the log.

Values from the records win. A fact of the old row is used only if the records leave it unknown, and only if the old row
belongs to the same group. This is known after all records that the old row was made of are read again. Offsets decide
this, not times, because the clocks of coordinators differ. A batch may end before that, so the new row keeps the facts
of the old one until then (`Group.known_before`).
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from streaming_app.groups import classic
from streaming_app.groups.group import CLASSIC, READ_AGAIN, SINCE, STORED_AT, STREAMS, Group

_PUSHES, _PUSHED_AT = "unsolicited_pushes", "last_unsolicited_push_at"
_PROVEN = (
    "group_epoch",
    "source_partition",
    "first_seen_at",
    *SINCE,
    *SINCE.values(),
    "topology_epochs",
    _PUSHES,
    _PUSHED_AT,
)


def marked(offset: int) -> int:
    """Return the `last_offset` that marks a row as obsolete. For a marked one, return the `last_offset` before."""
    return READ_AGAIN - 1 - offset


def is_marked(row: Mapping[str, Any]) -> bool:
    """Return whether a row is marked as obsolete."""
    return (row["last_offset"] or 0) <= READ_AGAIN


def known_before(row: Mapping[str, Any]) -> str | None:
    """Return the facts of an obsolete row of `groups` as JSON, for `Group.known_before`; None if it proves nothing.

    A row without record 17 proves nothing: its times are only those of its last operation, or when it was set aside.
    """
    if row.get("known_before") or row["deleted_at"] is not None or row["group_epoch"] is None:
        return row.get("known_before")  # the group is read again for the second time, or it is deleted
    proven = {name: row[name] for name in _PROVEN} | {"last_offset": marked(row["last_offset"])}
    if row.get("protocol") == CLASSIC:
        proven |= classic.proven(row)
    return json.dumps(proven, default=datetime.isoformat)


def carry_over(group: Group) -> None:
    """Fill unknown times and the count of pushes from the old row, and drop `known_before` when it is not needed."""
    if group.known_before is None or group.group_epoch is None:
        return
    row = json.loads(group.known_before, object_hook=_with_times)
    is_proven = group.first_seen_at not in (None, row["first_seen_at"])
    is_same = not group.is_deleted and group.group_epoch >= (row["group_epoch"] or 0)
    is_same = is_same and group.protocol == row.get("protocol", STREAMS)
    has_all = group.source_partition != row["source_partition"] or group.last_offset >= row["last_offset"]
    if is_same and not is_proven:
        _fill(group, row, has_all=has_all)
    if is_proven or has_all:  # the log has every record since the creation, or every record that made the old row
        group.known_before = None


def _fill(group: Group, row: Mapping[str, Any], *, has_all: bool) -> None:
    group.first_seen_at = group.first_seen_at or row["first_seen_at"]
    for name, since in SINCE.items():
        if getattr(group, name) == row[name] and getattr(group, since) is None:
            setattr(group, since, row[since])
    if group.is_classic:
        classic.fill(group, row)
    for step in row["topology_epochs"] or ():
        kept = group.topology_epochs.get(step.pop("topology_epoch"), {})
        for name, at in step.items():
            if isinstance(at, datetime) and kept.get(name) is None and (name != STORED_AT or name in kept):
                kept[name] = at
    if has_all and (pushed_at := row[_PUSHED_AT]):  # before that, records of the same pushes may still follow
        group.unsolicited_pushes = max(group.unsolicited_pushes, row[_PUSHES])
        group.last_unsolicited_push_at = max(filter(None, (group.last_unsolicited_push_at, pushed_at)))


def _with_times(values: dict[str, Any]) -> dict[str, Any]:
    times = {name: value for name, value in values.items() if name.endswith(("_at", "_since")) and value}
    return values | {name: datetime.fromisoformat(value) for name, value in times.items()}

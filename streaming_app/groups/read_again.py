"""What a group that is read again keeps of its row: what compaction took from the log, and the row proves.

The records come first: only what they leave unknown is taken over, and only while the row may be of the same group.
That shows once all records have been read that the row was made of, by their offsets: clocks of coordinators differ. A
batch may end before that, so what the row said stands in the new row until then (`Group.known_before`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from streaming_app.groups.group import READ_AGAIN, SINCE, STORED_AT, Group

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
    """Return the `last_offset` that says of a row that it counts no longer, or the one that it had before."""
    return READ_AGAIN - 1 - offset


def is_marked(row: Mapping[str, Any]) -> bool:
    """Return whether a row counts no longer."""
    return (row["last_offset"] or 0) <= READ_AGAIN


def known_before(row: Mapping[str, Any]) -> str | None:
    """Return what a row of `groups` that counts no longer proves, for `Group.known_before`; None for nothing.

    Without record 17 its times are only those of the last operation, or of when it was set aside.
    """
    if row.get("known_before") or row["deleted_at"] is not None or row["group_epoch"] is None:
        return row.get("known_before")  # it is read again for the second time, or gone
    proven = {name: row[name] for name in _PROVEN} | {"last_offset": marked(row["last_offset"])}
    return json.dumps(proven, default=datetime.isoformat)


def carry_over(group: Group) -> None:
    """Take over times that are unknown, and pushes that were counted, and forget what is of no more use."""
    if group.known_before is None or group.group_epoch is None:
        return
    row = json.loads(group.known_before, object_hook=_with_times)
    is_proven = group.first_seen_at not in (None, row["first_seen_at"])
    is_same = not group.is_deleted and group.group_epoch >= (row["group_epoch"] or 0)
    has_all = group.source_partition != row["source_partition"] or group.last_offset >= row["last_offset"]
    if is_same and not is_proven:
        _fill(group, row, has_all=has_all)
    if is_proven or has_all:  # the log has all since the group was created, or all that the row was made of
        group.known_before = None


def _fill(group: Group, row: Mapping[str, Any], *, has_all: bool) -> None:
    group.first_seen_at = group.first_seen_at or row["first_seen_at"]
    for name, since in SINCE.items():
        if getattr(group, name) == row[name] and getattr(group, since) is None:
            setattr(group, since, row[since])
    for step in row["topology_epochs"] or ():
        kept = group.topology_epochs.get(step.pop("topology_epoch"), {})
        for name, at in step.items():
            if isinstance(at, datetime) and kept.get(name) is None and (name != STORED_AT or name in kept):
                kept[name] = at
    if has_all and (pushed_at := row[_PUSHED_AT]):  # else the records of it may be still to come
        group.unsolicited_pushes = max(group.unsolicited_pushes, row[_PUSHES])
        group.last_unsolicited_push_at = max(filter(None, (group.last_unsolicited_push_at, pushed_at)))


def _with_times(values: dict[str, Any]) -> dict[str, Any]:
    times = {name: value for name, value in values.items() if name.endswith(("_at", "_since")) and value}
    return values | {name: datetime.fromisoformat(value) for name, value in times.items()}

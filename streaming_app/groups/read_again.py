"""What a group that is read again keeps of its row: what compaction took from the log, and the row proves.

The records come first: only what they leave unknown is taken over, and only while the row may be of the same group.
That shows once a record 17 has been read that is as new as the one that the row was of. A batch may end before that, so
what the row said stands in the new row until then (`Group.known_before`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from streaming_app.groups.group import SINCE, STORED_AT, Group

_PUSHES, _PUSHED_AT = "unsolicited_pushes", "last_unsolicited_push_at"
_PROVEN = (
    "group_epoch",
    "metadata_at",
    "first_seen_at",
    *SINCE,
    *SINCE.values(),
    "topology_epochs",
    _PUSHES,
    _PUSHED_AT,
)


def known_before(row: Mapping[str, Any]) -> str | None:
    """Return what a row of `groups` proves, for `Group.known_before`; None for nothing.

    Without record 17 its times are only those of the last operation, or of when it was set aside.
    """
    if row.get("known_before") or row["deleted_at"] is not None or row["group_epoch"] is None:
        return row.get("known_before")  # it is read again for the second time, or gone
    return json.dumps({name: row[name] for name in _PROVEN}, default=datetime.isoformat)


def carry_over(group: Group) -> None:
    """Take over times that are unknown, and pushes that were counted, and forget what is of no more use."""
    if group.known_before is None or group.group_epoch is None:
        return
    row = json.loads(group.known_before, object_hook=_with_times)
    is_proven = group.first_seen_at not in (None, row["first_seen_at"])
    is_same = not group.is_deleted and group.group_epoch >= (row["group_epoch"] or 0)
    if is_same and not is_proven:
        _fill(group, row)
    newest, of_row = group.updated_at if group.is_deleted else group.metadata_at, row["metadata_at"]
    has_all = is_same if of_row is None else newest is not None and newest >= of_row
    if is_proven or has_all:  # the log has all since the group was created, or all that the row was made of
        group.known_before = None


def _fill(group: Group, row: Mapping[str, Any]) -> None:
    group.first_seen_at = group.first_seen_at or row["first_seen_at"]
    for name, since in SINCE.items():
        if getattr(group, name) == row[name] and getattr(group, since) is None:
            setattr(group, since, row[since])
    for step in row["topology_epochs"] or ():
        kept = group.topology_epochs.get(step.pop("topology_epoch"), {})
        for name, at in step.items():
            if isinstance(at, datetime) and kept.get(name) is None and (name != STORED_AT or name in kept):
                kept[name] = at
    pushed_at, metadata_at = row[_PUSHED_AT], group.metadata_at
    if pushed_at and metadata_at and pushed_at <= metadata_at:  # else the records of it are still to come
        group.unsolicited_pushes = max(group.unsolicited_pushes, row[_PUSHES])
        group.last_unsolicited_push_at = max(filter(None, (group.last_unsolicited_push_at, pushed_at)))


def _with_times(values: dict[str, Any]) -> dict[str, Any]:
    times = {name: value for name, value in values.items() if name.endswith(("_at", "_since")) and value}
    return values | {name: datetime.fromisoformat(value) for name, value in times.items()}

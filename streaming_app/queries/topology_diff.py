"""What `diff` prints: what changed between two topologies of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streaming_app.errors import WarehouseError
from streaming_app.groups.topology import Change, changes_between, topology_hash
from streaming_app.queries import output
from streaming_app.queries.groups import find_groups
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.text import utc


@dataclass(frozen=True)
class KnownTopology:
    """A topology of a group, in force from `first_seen_at` until the next one."""

    topology_hash: str
    topology_epoch: int
    first_seen_at: datetime | None
    """None where the log does not say when it was written."""
    subtopologies: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Return it without its content."""
        return {name: value for name, value in vars(self).items() if name != "subtopologies"}

    def __str__(self) -> str:
        return f"{self.topology_hash}, epoch {self.topology_epoch}, since {_format(self.first_seen_at)}"


@dataclass(frozen=True)
class TopologyDiff:
    """What changed from one topology of a group to a later one."""

    group_id: str
    before: KnownTopology
    after: KnownTopology

    @property
    def changes(self) -> list[Change]:
        """What was added, removed and changed."""
        return changes_between(self.before.subtopologies, self.after.subtopologies)

    def to_json(self) -> dict[str, Any]:
        """Return what `diff --json` prints."""
        changes = [change._asdict() for change in self.changes]
        return {
            "group_id": self.group_id,
            "from": self.before.to_json(),
            "to": self.after.to_json(),
            "changes": changes,
        }

    def to_text(self) -> Iterator[str]:
        """Yield the lines that `diff` prints."""
        changes = self.changes
        if not changes:
            yield f"no difference: topology {self.after}"
            return
        yield f"from  {self.before}"
        yield f"to    {self.after}"
        yield output.columns([_row(change) for change in changes])


def diff_topologies(
    warehouse: WarehouseReader, cluster: str, group_id: str, since: datetime | None = None
) -> TopologyDiff:
    """Return what changed from the topology at the time `since`, or from the one before the newest, to the newest.

    Raises WarehouseError for a group that is unknown, or of which no earlier topology is known.
    """
    known = _known_topologies(warehouse, cluster, group_id)
    if not known:
        raise WarehouseError(f"Group {group_id!r} has no topology in the log yet")
    *earlier, newest = known
    if since is not None:
        earlier = [one for one in known if one.first_seen_at is None or one.first_seen_at <= since]
        if not earlier:
            begin = _format(known[0].first_seen_at)
            raise WarehouseError(
                f"No topology of group {group_id!r} is known at {_format(since)}: the first is of {begin}"
            )
    if not earlier:
        begin = _format(newest.first_seen_at)
        raise WarehouseError(f"Group {group_id!r} has had one topology only, since {begin}: none is earlier")
    return TopologyDiff(group_id, earlier[-1], newest)


def _known_topologies(warehouse: WarehouseReader, cluster: str, group_id: str) -> list[KnownTopology]:
    """Return the topologies of a group, oldest first, each different from the one before it."""
    (group,) = find_groups(warehouse, cluster, [group_id])
    rows = warehouse.rows(
        "SELECT topology_hash, topology_epoch, first_seen_at, subtopologies FROM topologies "  # noqa: S608 - quoted
        f"WHERE cluster = {quote(cluster)} AND group_id = {quote(group_id)} "
        'ORDER BY first_seen_at NULLS FIRST, "offset"'
    )
    if not rows and group["topology_epoch"] is not None:
        rows = [_of_older_release(group)]
    known = [KnownTopology(**row) for row in rows]
    return [one for one, before in zip(known, [None, *known], strict=False) if _differs(one, before)]


def _differs(one: KnownTopology, before: KnownTopology | None) -> bool:
    return before is None or one.topology_hash != before.topology_hash


def _of_older_release(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topology of a row of `groups` that has had no record since releases that kept only the newest one."""
    epoch, subtopologies = group["topology_epoch"], group["subtopologies"]
    steps = (step for step in group["topology_epochs"] if step["topology_epoch"] == epoch)
    first_seen_at = next((step["first_seen_at"] for step in steps), None)
    return {
        "topology_hash": topology_hash(subtopologies),
        "topology_epoch": epoch,
        "first_seen_at": first_seen_at,
        "subtopologies": subtopologies,
    }


def _row(change: Change) -> dict[str, Any]:
    return {
        "CHANGE": change.change,
        "WHAT": change.kind,
        "SUBTOPOLOGY": change.subtopology_id,
        "NAME": change.name,
        "ATTRIBUTE": change.attribute,
        "OLD": change.old,
        "NEW": change.new,
    }


def _format(time: datetime | None) -> str:
    return "an unknown time" if time is None else utc(time)

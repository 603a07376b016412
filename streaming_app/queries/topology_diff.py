"""The answer of `history --topology`: the changes between two topologies of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from streaming_app.errors import WarehouseError
from streaming_app.groups.description import TOPIC
from streaming_app.groups.topology import ADDED, REMOVED, Change, changes_between, topology_hash
from streaming_app.queries import output
from streaming_app.queries.groups import find_groups
from streaming_app.tables.reader import WarehouseReader, of_group
from streaming_app.text import EPOCH, count, utc

Nodes = frozenset[tuple[str, str | None, str]]
"""Kind, subtopology and name of each node of a description; without its topics, which are in the topology."""


@dataclass(frozen=True)
class KnownTopology:
    """A topology of a group, in force from `first_seen_at` until the next one."""

    topology_hash: str
    topology_epoch: int
    first_seen_at: datetime | None
    """None if the log does not have the time at which it was written."""
    subtopologies: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, without its content."""
        return {name: value for name, value in vars(self).items() if name != "subtopologies"}

    def __str__(self) -> str:
        return f"{self.topology_hash}, epoch {self.topology_epoch}, since {_format(self.first_seen_at)}"


@dataclass(frozen=True)
class TopologyDiff:
    """The changes from one topology of a group to a later one."""

    group_id: str
    before: KnownTopology
    after: KnownTopology
    nodes_before: Nodes | None = None
    """Processors and stores of its stored description; None if no description is known."""
    nodes_after: Nodes | None = None

    @property
    def changes(self) -> list[Change]:
        """The nodes and topics that were added, removed and changed."""
        changes = changes_between(self.before.subtopologies, self.after.subtopologies)
        if self.nodes_before is None or self.nodes_after is None:
            return changes
        for change, nodes in (
            (ADDED, self.nodes_after - self.nodes_before),
            (REMOVED, self.nodes_before - self.nodes_after),
        ):
            changes += [Change(change, kind, part or "", name) for kind, part, name in sorted(nodes, key=str)]
        return changes

    def to_json(self, limit: int) -> dict[str, Any]:
        """Return the output of `history --topology --json`, with at most `limit` changes."""
        changes = [change._asdict() for change in self.changes[:limit]]
        return {
            "group_id": self.group_id,
            "from": self.before.to_json(),
            "to": self.after.to_json(),
            "changes": changes,
            "descriptions_compared": None not in (self.nodes_before, self.nodes_after),
        }

    def to_text(self, limit: int) -> Iterator[str]:
        """Yield the lines of `history --topology`, with at most `limit` changes."""
        changes = self.changes
        if changes:
            yield f"from  {self.before}"
            yield f"to    {self.after}"
            yield output.columns([_row(change) for change in changes[:limit]])
            if len(changes) > limit:
                yield f"{count(len(changes) - limit, 'more change')}, see --limit."
        else:
            yield f"no difference: topology {self.after}"
        if (self.nodes_before is None) != (self.nodes_after is None):
            which = "earlier" if self.nodes_before is None else "newest"
            yield f"Processors and stores are not compared: no description of the {which} one is known."


def diff_topologies(
    warehouse: WarehouseReader, cluster: str, group_id: str, since: datetime | None = None
) -> TopologyDiff:
    """Return the changes from the topology at the time `since`, by default the last but one, to the newest.

    Raises WarehouseError for an unknown group, or a group without a known earlier topology.
    """
    known = _known_topologies(warehouse, cluster, group_id)
    if not known:
        raise WarehouseError(f"Group {group_id!r} has no topology in the log yet")
    descriptions = _known_descriptions(warehouse, cluster, group_id)
    *earlier, newest = known
    if since is not None:
        earlier = [one for one in known if one.first_seen_at is None or one.first_seen_at <= since]
        if not earlier:
            begin = _format(known[0].first_seen_at)
            raise WarehouseError(
                f"No topology of group {group_id!r} is known at {_format(since)}: the first is of {begin}"
            )
    elif not earlier and len(descriptions) > 1:  # the same topics, with other processors
        earlier, since = [newest], descriptions[-2].stored_at
    if not earlier:
        begin = _format(newest.first_seen_at)
        raise WarehouseError(f"Group {group_id!r} has had only one topology, since {begin}")
    before = [one for one in descriptions if _is_stored_by(one, since, newest)]
    after = [
        one for one in descriptions if not newest.first_seen_at or (one.stored_at or EPOCH) >= newest.first_seen_at
    ]
    return TopologyDiff(group_id, earlier[-1], newest, *(some[-1].nodes if some else None for some in (before, after)))


def topology_at(warehouse: WarehouseReader, cluster: str, group_id: str, at: datetime) -> KnownTopology | None:
    """Return the topology of a group at a time; None if the tables have no topology as old.

    Raises WarehouseError for an unknown group.
    """
    known = _known_topologies(warehouse, cluster, group_id)
    return next((one for one in reversed(known) if one.first_seen_at is None or one.first_seen_at <= at), None)


class _Description(NamedTuple):
    stored_at: datetime | None
    nodes: Nodes


def _is_stored_by(one: _Description, since: datetime | None, newest: KnownTopology) -> bool:
    """Return whether a description was stored by the time `since`; if None, before the newest topology."""
    stored_at = one.stored_at or EPOCH
    return stored_at <= since if since else newest.first_seen_at is not None and stored_at < newest.first_seen_at


def _known_descriptions(warehouse: WarehouseReader, cluster: str, group_id: str) -> list[_Description]:
    """Return the stored descriptions of a group that the job has fetched, oldest first."""
    rows = warehouse.rows(
        "SELECT stored_at, description_nodes FROM descriptions "  # noqa: S608 - quoted
        f"WHERE {of_group(cluster, group_id)} AND content_hash IS NOT NULL "
        "ORDER BY stored_at NULLS FIRST, fetched_at"
    )
    return [
        _Description(
            row["stored_at"],
            frozenset(
                (node["kind"], node["subtopology_id"], node["node"])
                for node in row["description_nodes"] or ()
                if node["kind"] != TOPIC
            ),
        )
        for row in rows
    ]


def _known_topologies(warehouse: WarehouseReader, cluster: str, group_id: str) -> list[KnownTopology]:
    """Return the topologies of a group, oldest first; each differs from the one before it."""
    (group,) = find_groups(warehouse, cluster, [group_id])
    rows = warehouse.rows(
        "SELECT topology_hash, topology_epoch, first_seen_at, subtopologies FROM topologies "  # noqa: S608 - quoted
        f"WHERE {of_group(cluster, group_id)} "
        'ORDER BY first_seen_at NULLS FIRST, "offset"'
    )
    if not rows and group["topology_epoch"] is not None:
        rows = [_of_older_release(group)]
    known = [KnownTopology(**row) for row in rows]
    pairs = zip(known, [None, *known], strict=False)
    return [one for one, before in pairs if before is None or one.topology_hash != before.topology_hash]


def _of_older_release(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the topology from a row of `groups` that a release wrote which kept only the newest topology."""
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

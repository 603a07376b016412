"""The answer of `history --topology`: the changes between two topologies of a group."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from streaming_app.errors import WarehouseError
from streaming_app.groups.description import TOPIC
from streaming_app.groups.topology import ADDED, REMOVED, TopologyChange, changes_between, not_compared
from streaming_app.queries import output
from streaming_app.queries.described import find_groups
from streaming_app.tables.reader import Row, WarehouseReader, of_group
from streaming_app.text import EPOCH, count, utc

_OF_TOPOLOGY = ("topology_hash", "topology_epoch", "first_seen_at")
_TITLES = ("CHANGE", "WHAT", "SUBTOPOLOGY", "NAME", "ATTRIBUTE", "OLD", "NEW")
"""Of the fields of a `TopologyChange`."""


def diff_topologies(warehouse: WarehouseReader, cluster: str, group_id: str, since: datetime | None = None) -> Row:
    """Return the changes from the topology at the time `since`, by default the last but one, to the newest.

    `from` and `to` are rows of `topologies`, `changes` are of type `TopologyChange`, and `undescribed` has which of the
    two lack a stored description, so that processors and stores are not compared. `from_is_first`: no topology of that
    time is known, and `from` is the first that is. Raises WarehouseError for an unknown group, and without `since` for
    one without a known earlier topology.
    """
    known = _known_topologies(warehouse, cluster, group_id)
    if not known:
        raise WarehouseError(f"Group {group_id!r} has no topology in the log yet")
    descriptions = _known_descriptions(warehouse, cluster, group_id)
    *earlier, newest = known
    is_first = False
    if since is not None:
        earlier = [one for one in known if one["first_seen_at"] is None or one["first_seen_at"] <= since]
        if not earlier:  # a young group, or one of which the log has lost the topology of then
            earlier, is_first = known[:1], True
    elif not earlier and len(descriptions) > 1:  # the same topics, with other processors
        earlier, since = [newest], descriptions[-2]["stored_at"]
    if not earlier:
        begin = _format(newest["first_seen_at"])
        raise WarehouseError(f"Group {group_id!r} has had only one topology, since {begin}")
    begins = newest["first_seen_at"]
    described = {
        "from": [one for one in descriptions if _is_stored_by(one["stored_at"] or EPOCH, since, begins)],
        "to": [one for one in descriptions if not begins or (one["stored_at"] or EPOCH) >= begins],
    }
    changes = changes_between(earlier[-1]["subtopologies"], newest["subtopologies"])
    undescribed = [which for which, some in described.items() if not some]
    if not undescribed:
        changes += _changed_nodes(*(some[-1]["description_nodes"] for some in described.values()))
    ends = {"from": earlier[-1], "to": newest, "from_is_first": is_first}
    return {"group_id": group_id, **ends, "changes": changes, "undescribed": undescribed}


def topology_at(warehouse: WarehouseReader, cluster: str, group_id: str, at: datetime) -> Row | None:
    """Return the topology of a group at a time, a row of `topologies`; None if the tables have no topology as old.

    Raises WarehouseError for an unknown group.
    """
    known = _known_topologies(warehouse, cluster, group_id)
    return next((one for one in reversed(known) if one["first_seen_at"] is None or one["first_seen_at"] <= at), None)


def to_json(diff: Row, limit: int) -> Row:
    """Return the output of `history --topology --json`, with at most `limit` changes."""
    return {
        "group_id": diff["group_id"],
        **{
            end: {name: value for name, value in diff[end].items() if name != "subtopologies"} for end in ("from", "to")
        },
        "changes": [change._asdict() for change in diff["changes"][:limit]],
        "from_is_first": diff["from_is_first"],
        "descriptions_compared": not diff["undescribed"],
    }


def to_text(diff: Row, limit: int) -> Iterator[str]:
    """Yield the lines of `history --topology`, with at most `limit` changes."""
    changes, newest = diff["changes"], describe_topology(diff["to"])
    if diff["from_is_first"]:
        yield f"No topology of that time is known: the first is of {_format(diff['from']['first_seen_at'])}."
    if changes:
        yield f"from  {describe_topology(diff['from'])}"
        yield f"to    {newest}"
        yield output.columns([dict(zip(_TITLES, change, strict=True)) for change in changes[:limit]])
        if len(changes) > limit:
            yield f"{count(len(changes) - limit, 'more change')}, see --limit."
    else:
        yield f"no difference: topology {newest}"
    if any(not_compared(diff[end]["subtopologies"]) for end in ("from", "to")):
        yield "Only topics that tasks read are compared: with the classic protocol the log has no others."
    elif len(diff["undescribed"]) == 1:
        which = "earlier" if diff["undescribed"] == ["from"] else "newest"
        yield f"Processors and stores are not compared: no description of the {which} one is known."


def describe_topology(one: Row) -> str:
    """Return a topology in words."""
    epoch = "" if one["topology_epoch"] is None else f", epoch {one['topology_epoch']}"
    return f"{one['topology_hash']}{epoch}, since {_format(one['first_seen_at'])}"


def _is_stored_by(stored_at: datetime, since: datetime | None, begins: datetime | None) -> bool:
    """Return whether a description was stored by the time `since`; if None, before the newest topology."""
    return stored_at <= since if since else begins is not None and stored_at < begins


def _changed_nodes(before: Sequence[Row] | None, after: Sequence[Row] | None) -> Iterator[TopologyChange]:
    old, new = (
        {(one["kind"], one["subtopology_id"], one["node"]) for one in nodes or () if one["kind"] != TOPIC}
        for nodes in (before, after)
    )
    for change, found in ((ADDED, new - old), (REMOVED, old - new)):
        yield from (TopologyChange(change, kind, part or "", name) for kind, part, name in sorted(found, key=str))


def _known_descriptions(warehouse: WarehouseReader, cluster: str, group_id: str) -> list[Row]:
    return warehouse.rows(
        "SELECT stored_at, description_nodes FROM descriptions "  # noqa: S608 - quoted
        f"WHERE {of_group(cluster, group_id)} AND content_hash IS NOT NULL "
        "ORDER BY stored_at NULLS FIRST, fetched_at"
    )


def _known_topologies(warehouse: WarehouseReader, cluster: str, group_id: str) -> list[Row]:
    """Return the topologies of a group, oldest first; each differs from the one before it.

    `first_seen_at` is None if the log does not have the time at which it was written.
    """
    find_groups(warehouse, cluster, [group_id], with_classic=True)
    rows = warehouse.rows(
        f"SELECT {', '.join(_OF_TOPOLOGY)}, subtopologies FROM topologies "  # noqa: S608 - quoted
        f"WHERE {of_group(cluster, group_id)} "
        'ORDER BY first_seen_at NULLS FIRST, "offset"'
    )
    hashes = [None, *(row["topology_hash"] for row in rows)]
    return [row for row, before in zip(rows, hashes, strict=False) if row["topology_hash"] != before]


def _format(time: datetime | None) -> str:
    return "an unknown time" if time is None else utc(time)

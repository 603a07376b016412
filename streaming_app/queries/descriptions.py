"""What `describe --description` prints: the stored topology description that the job fetched last."""

from __future__ import annotations

from streaming_app.errors import WarehouseError
from streaming_app.queries.groups import find_groups
from streaming_app.tables.reader import Row, WarehouseReader, of_group
from streaming_app.text import utc

_AVAILABLE, _CURRENT = "AVAILABLE", "CURRENT"
_WHY_NONE = {
    _CURRENT: "the job has not fetched it yet, or needs Describe on the group and its topics",
    "FAILED": "the brokers' plugin rejected the one that a client pushed, and no broker asks for it again",
    "UNCERTAIN": "a client has pushed one, and whether the brokers' plugin stored it is not known",
    "STALE": "the job never fetched the stored one, which is of another topology epoch",
    "NEVER_STORED": "no client has pushed one that the brokers store",
    "NO_TOPOLOGY": "the group has no topology",
}
"""By the status of the group's description."""
_COLUMNS = ("group_id", "topology_epoch", "status", "stored_at", "fetched_at", "text", "node_count", "truncated")


def find_description(reader: WarehouseReader, cluster: str, group_id: str) -> Row:
    """Return the description that the job fetched last, also of an earlier topology, or of a group that is gone.

    It has the columns of `descriptions`, and `is_current`: by the log it still describes the group's topology. Raises
    WarehouseError if there is none, or no such group.
    """
    (group,) = find_groups(reader, cluster, [group_id])
    rows = reader.rows(
        f"SELECT {', '.join(_COLUMNS)} FROM descriptions "  # noqa: S608 - quoted
        f"WHERE {of_group(cluster, group_id)} AND fetched_at IS NOT NULL "
        "ORDER BY is_newest DESC, fetched_at DESC LIMIT 1"
    )
    status = group["description_status"]
    if rows:
        is_current = status == _CURRENT and rows[0]["topology_epoch"] == group["topology_epoch"]
        return {**rows[0], "is_current": is_current}
    why = _WHY_NONE.get(status, "its status is not known")
    raise WarehouseError(f"No topology description of {group_id}: {why} ({status})")


def origin(row: Row) -> str:
    """Return a sentence: which description it is."""
    if not row["is_current"]:
        since = ", no longer the one of the group's topology"
    else:
        since = "" if row["status"] == _AVAILABLE else f"; asked again, the broker said {row['status']}"
    return f"Description of topology epoch {row['topology_epoch']}, fetched at {utc(row['fetched_at'])}{since}."

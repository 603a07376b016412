"""The answer of `describe --description`: the stored topology description that the job fetched last."""

from __future__ import annotations

from typing import Any, NamedTuple

from streaming_app.errors import WarehouseError
from streaming_app.queries.groups import find_groups
from streaming_app.tables.reader import Row, WarehouseReader, of_group
from streaming_app.text import utc

_AVAILABLE, _CURRENT = "AVAILABLE", "CURRENT"
_WHY_NONE = {
    _CURRENT: "the job has not fetched it yet, or needs Describe on the group and its topics",
    "FAILED": "the brokers' plugin rejected a client's description, and the brokers do not ask for it again",
    "UNCERTAIN": "a client has pushed one, but it is not known whether the brokers' plugin stored it",
    "STALE": "the stored one is of another topology epoch, and the job never fetched it",
    "NEVER_STORED": "no client has pushed one that the brokers store",
    "NO_TOPOLOGY": "the group has no topology",
}
"""The reason why there is no description, by the status of the group's description."""
_COLUMNS = ("group_id", "topology_epoch", "status", "stored_at", "fetched_at", "text", "node_count", "truncated")


class Description(NamedTuple):
    """A row of `descriptions`, and whether it is still current."""

    row: Row
    is_current: bool
    """Whether, by the log, it still describes the group's topology."""

    @property
    def text(self) -> str:
        """The description as `Topology#describe()` prints it. Raises WarehouseError if it is too large."""
        if (text := self.row["text"]) is None:
            nodes = f"{self.row['node_count']:,} nodes"
            raise WarehouseError(f"The description has {nodes}, too many to print: see the view description_nodes")
        return str(text)

    @property
    def origin(self) -> str:
        """A sentence that says which description this is."""
        row = self.row
        if not self.is_current:
            since = ", no longer the one of the group's topology"
        else:
            since = "" if row["status"] == _AVAILABLE else f"; asked again, the broker said {row['status']}"
        return f"Description of topology epoch {row['topology_epoch']}, fetched at {utc(row['fetched_at'])}{since}."

    def to_json(self) -> dict[str, Any]:
        """Return what `describe --description --json` prints."""
        return {**self.row, "is_current": self.is_current}


def find_description(reader: WarehouseReader, cluster: str, group_id: str) -> Description:
    """Return the last fetched description, which may be of an earlier topology or of a deleted group.

    Raises WarehouseError if there is none, or no such group.
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
        return Description(rows[0], is_current)
    why = _WHY_NONE.get(status, "its status is not known")
    raise WarehouseError(f"No topology description of {group_id}: {why} ({status})")

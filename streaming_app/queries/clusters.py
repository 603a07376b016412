"""Which clusters a warehouse has: those whose job has run here, and those that have groups."""

from __future__ import annotations

from pathlib import Path

from streaming_app.errors import WarehouseError
from streaming_app.tables.heartbeat_file import clusters_with_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader


def find_clusters(reader: WarehouseReader, warehouse: Location | Path) -> list[str]:
    """Return the names of the clusters, sorted. Raises WarehouseError."""
    with_groups = {row["cluster"] for row in reader.rows("SELECT DISTINCT cluster FROM groups")}
    return sorted(with_groups | clusters_with_heartbeat(warehouse))


def check_cluster(reader: WarehouseReader, warehouse: Location | Path, cluster: str) -> None:
    """Raise WarehouseError, with the clusters that there are, if the warehouse has others but not this one."""
    known = find_clusters(reader, warehouse)
    if known and cluster not in known:
        names = ", ".join(map(repr, known))
        raise WarehouseError(f"No cluster {cluster!r} in {warehouse}, which has {names}: name one with --cluster")

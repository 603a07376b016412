"""The `alerts` table, read and written by delta-rs: an evaluation every few seconds must not cost a Spark job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from streaming_app.alerts.alert import Alert, Delivery
from streaming_app.tables.definitions import table
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.tables.rust_table import Commit, RustTable, older_than

_REMOVED = "removed"  # a state only in the source of the merge: the row is deleted
_SAME = (
    "t.cluster = s.cluster AND t.rule = s.rule AND t.pending_since = s.pending_since "
    "AND coalesce(t.group_id, '') = coalesce(s.group_id, '')"
)
_DAYS = 30  # longer than any sensible `for`; a notification that could not be sent for so long is obsolete


class AlertsTable:
    """The alerts of one cluster."""

    def __init__(self, warehouse: Location | Path, cluster: str, fence: Fence | None = None) -> None:
        self._warehouse = Location.of(warehouse)
        self._table = RustTable(self._warehouse / "alerts", cluster, fence)
        self._schema = self._table.schema()

    def alerts(self) -> list[Alert]:
        """Return the open and the recently resolved alerts. Raises WarehouseError when the table cannot be read."""
        recent = f"(resolved_at IS NULL OR resolved_at > now() - INTERVAL '{_DAYS} days')"
        return read_alerts(WarehouseReader(self._warehouse), f"{self._table.own_rows} AND {recent}")

    def save(self, alerts: Iterable[Alert], removed: Iterable[Alert] = ()) -> None:
        """Insert or update the rows of these alerts, and delete those of `removed`, in one commit.

        Raises OSError when the table cannot be written.
        """
        rows = [_to_row(alert) for alert in alerts] + [{**_to_row(alert), "state": _REMOVED} for alert in removed]
        if rows:
            new = pa.Table.from_pylist(rows, self._schema)
            self._table.change(lambda target, commit: self._merge(target, new, commit))

    def _merge(self, target: DeltaTable, rows: pa.Table, commit: Commit) -> None:
        same = f"{_SAME} AND t.cluster = {quote(self._table.cluster)}"
        merge = target.merge(rows, same, "s", "t", **commit)
        merge = merge.when_matched_delete(f"s.state = '{_REMOVED}'").when_matched_update_all()
        merge.when_not_matched_insert_all(f"s.state <> '{_REMOVED}'").execute()

    def maintain(self, retention_days: float) -> None:
        """Delete alerts that were resolved before the retention, and keep the files few, if that is due."""
        self._table.maintain(older_than("resolved_at", retention_days))


def read_alerts(warehouse: WarehouseReader, where: str) -> list[Alert]:
    """Return the alerts that match this SQL condition, oldest first."""
    names = ", ".join(table("alerts").names)
    order = "pending_since, rule, group_id NULLS FIRST"
    rows = warehouse.rows(f"SELECT {names} FROM alerts WHERE {where} ORDER BY {order}")  # noqa: S608 - our own names
    return [_from_row(row) for row in rows]


def to_json(alert: Alert) -> dict[str, Any]:
    """Return an alert as the JSON object of `streams-groups alerts --json`."""
    return asdict(alert) | {"incident_id": alert.incident_id}


def _to_row(alert: Alert) -> dict[str, Any]:
    row = asdict(alert)
    return row | {"details": json.dumps(row["details"]), "deliveries": list(row["deliveries"])}


def _from_row(row: Mapping[str, Any]) -> Alert:
    deliveries = tuple(Delivery(**delivery) for delivery in row["deliveries"] or ())
    return Alert(**{**row, "details": json.loads(row["details"] or "{}"), "deliveries": deliveries})

"""The `alerts` table. delta-rs reads and writes it: an evaluation every few seconds must not cost a Spark job."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from streaming_app.alerts.alert import STATES, Alert, Delivery, Line
from streaming_app.alerts.open_alerts import REMEMBERED
from streaming_app.tables.definitions import table
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable

OPEN = "opened_at IS NOT NULL AND ended_at IS NULL"
"""SQL condition for the rows of open alerts."""
_REMOVED = "removed"  # exists only in the source of the merge, which deletes rows with this rule


class AlertsTable:
    """The alerts of one cluster."""

    def __init__(self, warehouse: Location | Path, cluster: str, fence: Fence | None = None) -> None:
        self._warehouse = Location.of(warehouse)
        self._table = RustTable(self._warehouse / "alerts", cluster, fence)

    def alerts(self) -> list[Alert]:
        """Return the alerts that are open or ended recently. Raises WarehouseError if the table cannot be read."""
        recent = f"(ended_at IS NULL OR ended_at > now() - INTERVAL '{REMEMBERED.days} days')"
        return read_alerts(WarehouseReader(self._warehouse), f"{self._table.own_rows} AND {recent}")

    def save(self, alerts: Iterable[Alert]) -> None:
        """Insert or update the rows of these alerts, and delete forgotten alerts, in one commit.

        Raises OSError when the table cannot be written.
        """
        rows = [to_row(one) | ({"rule": _REMOVED} if one.is_forgotten else {}) for one in alerts]
        if rows:
            self._table.merge(self._table.to_table(rows), ["alert_id"], f"s.rule = '{_REMOVED}'")


def read_alerts(warehouse: WarehouseReader, where: str) -> list[Alert]:
    """Return the alerts that match this SQL condition, oldest first."""
    names = ", ".join(table("alerts").names)
    order = "since, rule, group_id NULLS FIRST"
    rows = warehouse.rows(f"SELECT {names} FROM alerts WHERE {where} ORDER BY {order}")  # noqa: S608 - our own names
    return [_from_row(row) for row in rows]


def to_json(one: Alert) -> dict[str, Any]:
    """Return an alert as the JSON object of `streams-groups alerts --json`."""
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    return values | {
        "state": STATES[one.state],
        "timeline": [line._asdict() for line in one.timeline],
        "deliveries": [asdict(delivery) for delivery in one.deliveries],
    }


def to_row(one: Alert) -> dict[str, Any]:
    """Return the row of an alert."""
    row = {name: getattr(one, name) for name in table("alerts").names}
    return row | {
        "labels": list(one.labels.items()),
        "evidence": json.dumps(one.evidence, default=str),
        "timeline": [line._asdict() for line in one.timeline],
        "deliveries": [asdict(delivery) for delivery in one.deliveries],
    }


def _from_row(row: Mapping[str, Any]) -> Alert:
    values = {
        "labels": dict(row["labels"] or {}),
        "evidence": json.loads(row["evidence"] or "{}"),
        "timeline": tuple(Line(**line) for line in row["timeline"] or ()),
        "deliveries": tuple(Delivery(**delivery) for delivery in row["deliveries"] or ()),
    }
    return Alert(**{**row, **values})

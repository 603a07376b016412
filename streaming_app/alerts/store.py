"""The `alerts` table, read and written by delta-rs: a look every few seconds shall not cost a Spark job.

The job of a cluster is the only writer of its rows, and a table is shared by clusters: where two jobs commit at once
Delta lets one win, and the other tries again. Upkeep of this table is done here, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from schemas.table_definitions import table
from streaming_app.core.alert import Alert, Delivery
from streaming_app.serve.place import Place
from streaming_app.serve.stores import reason
from streaming_app.serve.warehouse import Warehouse, quoted

_GONE = "gone"  # as a state, only on its way to the table: the row is dropped
_SAME = (
    "t.cluster = s.cluster AND t.rule = s.rule AND t.pending_since = s.pending_since "
    "AND coalesce(t.group_id, '') = coalesce(s.group_id, '')"
)
_DAYS = 30  # longer than any grace, and a notification that could not be sent in so long is no news any more


class AlertStore:
    """The alerts of one cluster."""

    def __init__(self, warehouse: Place | Path, cluster: str) -> None:
        self._warehouse = Place.of(warehouse)
        self._cluster = cluster
        self._schema = pa.schema(self._table().schema().to_arrow())

    def alerts(self) -> list[Alert]:
        """What is open, and what was resolved lately. Raises WarehouseError when the table cannot be read."""
        recent = f"(resolved_at IS NULL OR resolved_at > now() - INTERVAL '{_DAYS} days')"
        return read_alerts(Warehouse(self._warehouse), f"cluster = {quoted(self._cluster)} AND {recent}")

    def save(self, alerts: Iterable[Alert], gone: Iterable[Alert] = ()) -> None:
        """Put these alerts in place of their former rows, and drop those of `gone`, in one commit.

        Raises OSError when the table cannot be written.
        """
        rows = [_row(alert) for alert in alerts] + [{**_row(alert), "state": _GONE} for alert in gone]
        if rows:
            try:
                self._merge(pa.Table.from_pylist(rows, self._schema))
            except (DeltaError, OSError) as error:
                raise OSError(f"Cannot write the table alerts: {reason(error)}") from None

    @retry(
        retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(5), wait=wait_fixed(0.2), reraise=True
    )
    def _merge(self, rows: pa.Table) -> None:
        target = self._table()
        merge = target.merge(rows, f"{_SAME} AND t.cluster = {quoted(self._cluster)}", "s", "t")
        merge = merge.when_matched_delete(f"s.state = '{_GONE}'").when_matched_update_all()
        merge.when_not_matched_insert_all(f"s.state <> '{_GONE}'").execute()

    def upkeep(self, retention_days: float) -> None:
        """Drop what was resolved longer ago, compact the files, and remove those that no kept version needs."""
        target = self._table()
        mine = f"cluster = {quoted(self._cluster)}"
        target.delete(f"{mine} AND resolved_at < now() - INTERVAL '{retention_days * 24:.0f} hours'")
        target.optimize.compact(partition_filters=[("cluster", "=", self._cluster)])
        target.vacuum(dry_run=False)
        target.cleanup_metadata()

    def _table(self) -> DeltaTable:
        return (self._warehouse / "alerts").delta_table()


def read_alerts(warehouse: Warehouse, where: str) -> list[Alert]:
    """The alerts for which this condition of SQL holds, the oldest first."""
    names = ", ".join(table("alerts").names)
    order = "pending_since, rule, group_id NULLS FIRST"
    rows = warehouse.rows(f"SELECT {names} FROM alerts WHERE {where} ORDER BY {order}")  # noqa: S608 - ours
    return [_alert(row) for row in rows]


def shown(alert: Alert) -> dict[str, Any]:
    """An alert as JSON shows it."""
    return asdict(alert)


def _row(alert: Alert) -> dict[str, Any]:
    row = asdict(alert)
    return row | {"details": json.dumps(row["details"]), "deliveries": list(row["deliveries"])}


def _alert(row: Mapping[str, Any]) -> Alert:
    deliveries = tuple(Delivery(**delivery) for delivery in row["deliveries"] or ())
    return Alert(**{**row, "details": json.loads(row["details"] or "{}"), "deliveries": deliveries})

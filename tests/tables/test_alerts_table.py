from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from deltalake import DeltaTable

from streaming_app.alerts.problem import FIRING, PENDING, RESOLVED, Delivery, Problem
from streaming_app.tables.alerts_table import AlertsTable
from tests.support.warehouses import make_warehouse

NOW = datetime.now(timezone.utc).replace(microsecond=1)
PENDING_ONE = Problem("default", "it's", "Rule", "warning", PENDING, NOW, None, None, "One line", {"number": 1})


def test_alerts_are_read_as_they_were_saved(empty_warehouse: Path) -> None:
    fired = replace(
        PENDING_ONE, state=FIRING, opened_at=NOW, deliveries=(Delivery("log", FIRING, NOW, 1), Delivery("x", FIRING))
    )
    about_the_job = replace(PENDING_ONE, group_id=None)
    AlertsTable(empty_warehouse, "default").save([fired, about_the_job])
    assert AlertsTable(empty_warehouse, "default").alerts() == [about_the_job, fired]


def test_an_alert_replaces_its_former_row_and_removed_alerts_are_deleted(empty_warehouse: Path) -> None:
    store = AlertsTable(empty_warehouse, "default")
    other = replace(PENDING_ONE, group_id="other")
    store.save([PENDING_ONE, other])
    fired = replace(PENDING_ONE, state=FIRING, opened_at=NOW)
    store.save([fired], removed=[other])
    store.save([fired], removed=[other])  # as if the response to the commit was lost
    assert store.alerts() == [fired]


def test_clusters_that_share_a_warehouse_are_separate(empty_warehouse: Path) -> None:
    AlertsTable(empty_warehouse, "default").save([PENDING_ONE])
    other = AlertsTable(empty_warehouse, "other")
    other.save([], removed=[PENDING_ONE])
    assert other.alerts() == []
    assert AlertsTable(empty_warehouse, "default").alerts() == [PENDING_ONE]


def test_maintenance_deletes_alerts_that_were_resolved_before_the_retention(tmp_path: Path) -> None:
    """Also where files have statistics of every column, such as those of a table that delta-rs created."""
    store = AlertsTable(make_warehouse(tmp_path), "default")
    resolved = replace(PENDING_ONE, state=RESOLVED, opened_at=NOW, resolved_at=NOW)
    old = replace(resolved, group_id="old", resolved_at=NOW - timedelta(days=8))
    for alert in (PENDING_ONE, replace(resolved, group_id="new"), old):
        store.save([alert])
    assert DeltaTable(tmp_path / "alerts").get_add_actions(flatten=True).schema.names.count("min.ended_at")
    store.maintain(retention_days=7)
    assert {alert.group_id for alert in store.alerts()} == {"it's", "new"}

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from deltalake import DeltaTable

from streaming_app.alerts.alert import FIRING, Delivery, Line
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.rust_table import RustTable
from tests.alerts.examples import make_alert
from tests.support.warehouses import make_warehouse

NOW = datetime.now(timezone.utc).replace(microsecond=1)
PENDING_ONE = make_alert(cluster="default", group_id="it's", since=NOW, opened_at=None, labels={"team": "payments"})


def test_alerts_are_read_as_they_were_saved(empty_warehouse: Path) -> None:
    fired = replace(
        PENDING_ONE,
        opened_at=NOW,
        cause="broker_away:3",
        timeline=(Line(NOW, "Down", "StreamsGroupDown", "critical", "no members"),),
        deliveries=(Delivery("log", FIRING, NOW, 1), Delivery("x", FIRING)),
    )
    about_the_job = replace(PENDING_ONE, alert_id="job", group_id=None)
    AlertsTable(empty_warehouse, "default").save([fired, about_the_job])
    assert AlertsTable(empty_warehouse, "default").alerts() == [about_the_job, fired]


def test_an_alert_replaces_its_former_row_and_removed_alerts_are_deleted(empty_warehouse: Path) -> None:
    store = AlertsTable(empty_warehouse, "default")
    other = replace(PENDING_ONE, alert_id="other", group_id="other")
    store.save([PENDING_ONE, other])
    fired = replace(PENDING_ONE, opened_at=NOW)
    forgotten = replace(other, ended_at=NOW)
    store.save([fired, forgotten])
    store.save([fired, forgotten])  # as if the response to the commit was lost
    assert store.alerts() == [fired]


def test_clusters_that_share_a_warehouse_are_separate(empty_warehouse: Path) -> None:
    AlertsTable(empty_warehouse, "default").save([PENDING_ONE])
    other = AlertsTable(empty_warehouse, "other")
    other.save([replace(PENDING_ONE, ended_at=NOW)])
    assert other.alerts() == []
    assert AlertsTable(empty_warehouse, "default").alerts() == [PENDING_ONE]


def test_maintenance_deletes_alerts_that_ended_before_the_retention(tmp_path: Path) -> None:
    """Also where files have statistics of every column, such as those of a table that delta-rs created."""
    store = AlertsTable(make_warehouse(tmp_path), "default")
    ended = replace(PENDING_ONE, alert_id="new", group_id="new", opened_at=NOW, ended_at=NOW)
    old = replace(ended, alert_id="old", group_id="old", ended_at=NOW - timedelta(days=8))
    for alert in (PENDING_ONE, ended, old):
        store.save([alert])
    assert DeltaTable(tmp_path / "alerts").get_add_actions(flatten=True).schema.names.count("min.ended_at")
    MaintainedTable(RustTable(Location.of(tmp_path / "alerts"), "default"), 7).maintain()
    assert {alert.group_id for alert in store.alerts()} == {"it's", "new"}

"""The tables of verdicts and alerts: what is stored is read again, and who ends an alert is heard."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming_app.alerts.alert import FIRING, Delivery, Line
from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.health.verdict import DOWN, OK, Verdict, pending_evidence
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.expiry import delete_expired
from streaming_app.tables.health_tables import HISTORY, EndedAlerts, HealthRow, HealthTable
from streaming_app.tables.location import Location
from streaming_app.tables.maintenance import MaintainedTable
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.table_files import TableFiles
from tests.alerts.examples import make_alert
from tests.support.health_harness import NOW, ago
from tests.support.warehouses import make_warehouse

AT = datetime.now(timezone.utc).replace(microsecond=1)
PENDING_ONE = make_alert(cluster="default", group_id="it's", since=AT, opened_at=None, labels={"team": "payments"})
OF_DOWN = Verdict(
    DOWN, ago(minutes=9), ago(minutes=4), "no members", "critical", {"offsets": 7}, None, ago(hours=-3), ago(minutes=1)
)


def test_the_newest_row_of_a_group_is_its_verdict_until_it_ends(
    tmp_path: Path, create_warehouse: Callable[[Path], Path]
) -> None:
    table, other = (HealthTable(create_warehouse(tmp_path), name) for name in ("prod", "other"))
    ok = Verdict(OK, NOW, NOW, "Offsets advance.", evidence=pending_evidence(OF_DOWN, outlives=False))
    first, down = HealthRow("b", ok, NOW), HealthRow("a", OF_DOWN, OF_DOWN.at, {"team": "payments"})
    other.append([first._replace(group_id="a")])
    table.append([first, first._replace(group_id="a"), down])
    late = down._replace(at=NOW + timedelta(microseconds=1))
    assert sorted(table.rows()) == [late, first], "a row is later than the one before, whatever its own time is"
    pending = "SELECT verdict, pending_verdict, pending_at FROM group_health WHERE group_id = 'b'"
    assert [tuple(row.values()) for row in WarehouseReader(tmp_path).rows(pending)] == [(OK, DOWN, OF_DOWN.at)]

    again = HealthTable(tmp_path, "prod")  # of the next run
    assert sorted(again.rows()) == [late, first]
    again.append([down._replace(verdict=ok, is_end=True)])
    assert ([*again.rows()], [row.group_id for row in other.rows()]) == ([first], ["a"])
    again.append([down._replace(at=NOW + timedelta(seconds=9))])
    assert [row.group_id for row in sorted(again.rows())] == ["a", "b"]


def test_a_row_is_written_once_whatever_became_of_the_write(
    tmp_path: Path, create_warehouse: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, append = HealthTable(create_warehouse(tmp_path), "prod"), RustTable.append
    rows = [HealthRow(name, OF_DOWN, NOW) for name in "abc"]
    assert [*table.rows()] == []
    with monkeypatch.context() as patched:
        patched.delattr(RustTable, "merge")  # merges of a million take minutes
        table.append(rows[:1])

    def lose_answer(table: RustTable, rows: Any) -> None:
        append(table, rows)
        raise OSError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(RustTable, "append", lose_answer)
        with pytest.raises(OSError, match="no answer"):
            table.append(rows[1:])
    table.append(rows[1:])
    assert sorted(table.rows()) == rows
    assert WarehouseReader(tmp_path).rows("SELECT count(*) AS n FROM group_health_history") == [{"n": 3}]


def test_the_newest_verdict_of_a_group_does_not_expire_and_its_end_does(
    tmp_path: Path, create_warehouse: Callable[[Path], Path]
) -> None:
    """Kept, too, if the row of the group has expired: its alert lasts. `groups` is empty here."""
    path, days = Location.of(create_warehouse(tmp_path)), 30.0
    table, own = HealthTable(path, "prod"), RustTable(path / HISTORY, "prod")
    verdicts = [Verdict(DOWN, at, at, "no members") for at in (NOW - timedelta(days=day) for day in (99, 98))]
    table.append([HealthRow(group_id, one, one.at) for group_id in "ab" for one in verdicts])
    table.append([HealthRow("b", verdicts[1], verdicts[1].at, is_end=True)])
    assert delete_expired(own, TableFiles(own), RustTable(path / "groups", "prod"), days) == 4
    assert [(row.group_id, row.verdict.since) for row in table.rows()] == [("a", NOW - timedelta(days=98))]


def test_the_alert_about_a_verdict_is_the_open_one(tmp_path: Path, create_warehouse: Callable[[Path], Path]) -> None:
    HealthTable(create_warehouse(tmp_path), "default").append([HealthRow("g", OF_DOWN, NOW)])

    def found(**columns: Any) -> str | None:
        AlertsTable(tmp_path, "default").save([make_alert(cluster="default", group_id="g", **columns)])
        return WarehouseReader(tmp_path).rows("SELECT alert_id FROM group_health")[0]["alert_id"]

    assert found(alert_id="pending", rule="StreamsGroupDown", opened_at=None) is None
    assert found(alert_id="another", rule="StreamsGroupStandbyBehind", opened_at=NOW) is None
    for rule in HEALTH_RULES:
        assert found(alert_id="open", rule=rule, opened_at=NOW) == "open", rule
    assert found(alert_id="open", rule="StreamsGroupDown", opened_at=NOW, ended_at=NOW) is None


def test_who_ends_an_alert_is_heard_once_and_a_damaged_file_is_not(tmp_path: Path) -> None:
    ended = EndedAlerts(tmp_path, "prod")
    assert ended.reasons() == {}
    ended.end(["abc"], "retired", "somebody", NOW)
    ended.end(["d", "e"], "planned", "somebody", NOW)
    (tmp_path / "_jobs" / "prod.incidents" / "def.json").write_text("{")
    assert EndedAlerts(tmp_path, "prod").reasons() == {"abc": "retired", "d": "planned", "e": "planned"}


def test_alerts_are_read_as_they_were_saved(empty_warehouse: Path) -> None:
    fired = replace(
        PENDING_ONE,
        opened_at=AT,
        cause="broker_away:3",
        timeline=(Line(AT, "Down", "StreamsGroupDown", "critical", "no members"),),
        deliveries=(Delivery("log", FIRING, AT, 1), Delivery("x", FIRING)),
    )
    about_the_job = replace(PENDING_ONE, alert_id="job", group_id=None)
    AlertsTable(empty_warehouse, "default").save([fired, about_the_job])
    assert AlertsTable(empty_warehouse, "default").alerts() == [about_the_job, fired]


def test_an_alert_replaces_its_former_row_and_removed_alerts_are_deleted(empty_warehouse: Path) -> None:
    store = AlertsTable(empty_warehouse, "default")
    other = replace(PENDING_ONE, alert_id="other", group_id="other")
    store.save([PENDING_ONE, other])
    fired = replace(PENDING_ONE, opened_at=AT)
    forgotten = replace(other, ended_at=AT)
    store.save([fired, forgotten])
    store.save([fired, forgotten])  # as if the response to the commit was lost
    assert store.alerts() == [fired]


def test_clusters_that_share_a_warehouse_are_separate(empty_warehouse: Path) -> None:
    AlertsTable(empty_warehouse, "default").save([PENDING_ONE])
    other = AlertsTable(empty_warehouse, "other")
    other.save([replace(PENDING_ONE, ended_at=AT)])
    assert other.alerts() == []
    assert AlertsTable(empty_warehouse, "default").alerts() == [PENDING_ONE]


def test_maintenance_deletes_alerts_that_ended_before_the_retention(tmp_path: Path) -> None:
    """Also where files have statistics of every column, such as those of a table that delta-rs created."""
    store = AlertsTable(make_warehouse(tmp_path), "default")
    ended = replace(PENDING_ONE, alert_id="new", group_id="new", opened_at=AT, ended_at=AT)
    old = replace(ended, alert_id="old", group_id="old", ended_at=AT - timedelta(days=8))
    for alert in (PENDING_ONE, ended, old):
        store.save([alert])
    assert DeltaTable(tmp_path / "alerts").get_add_actions(flatten=True).schema.names.count("min.ended_at")
    MaintainedTable(RustTable(Location.of(tmp_path / "alerts"), "default"), 7).maintain()
    assert {alert.group_id for alert in store.alerts()} == {"it's", "new"}

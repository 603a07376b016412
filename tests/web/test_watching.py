"""What open pages depend on: errors of a reading, and tables that change."""

import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from streaming_app.errors import WarehouseError
from streaming_app.web import page_snapshot
from streaming_app.web.page_snapshot import NOTHING_KNOWN, Reading, SnapshotSource
from tests.support.waiting import wait_until
from tests.support.warehouses import append, make_warehouse

NOW = datetime(2026, 11, 26, tzinfo=timezone.utc)
MINUTES = 120.0  # for what another thread does


def test_what_could_not_be_read_is_read_again_though_no_table_has_changed() -> None:
    results: list[Any] = [WarehouseError("a file is missing"), ["new"]]

    def read() -> list[str]:
        if isinstance(results[0], Exception):
            raise results.pop(0)
        return list(results[0])

    reading = Reading(read, ["old"], rest=0.0)
    assert (reading.newest("version 1"), str(reading.error)) == ((["old"], 0), "a file is missing")
    assert (reading.newest("version 1"), reading.error) == ((["new"], 1), None)
    assert reading.newest("version 2") == (["new"], 1)  # the content is the same


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("alerts", {"alert_id": "i"}),
        ("broker_facts", {"subject": "s", "kind": "isr"}),
        ("topologies", {"group_id": "g"}),
        ("lag_history", {"group_id": "g"}),
        ("group_health_history", {"group_id": "g"}),
    ],
)
def test_a_change_of_a_table_that_the_page_shows_is_a_new_snapshot(
    name: str, row: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_snapshot, "CHECK_SECONDS", 0)
    warehouse = make_warehouse(tmp_path / "warehouse")
    snapshots = SnapshotSource(warehouse, "default", lambda: NOW)
    before = snapshots.current()
    append(warehouse, name, row)
    assert wait_until(lambda: snapshots.current().tag != before.tag)


def test_groups_of_other_types_that_come_during_a_check_are_shown_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Event()

    def read(*_: object) -> list[Any]:
        assert begin.wait(MINUTES)
        return [{**NOTHING_KNOWN, "group_id": "other", "group_type": "consumer"}]

    monkeypatch.setattr(page_snapshot, "CHECK_SECONDS", 0)
    monkeypatch.setattr(page_snapshot, "_FIRST_WAIT", 0)
    monkeypatch.setattr(page_snapshot, "read_other_groups", read)
    snapshots = SnapshotSource(make_warehouse(tmp_path / "warehouse"), "default", lambda: NOW)
    refresh = snapshots._mutes.refresh

    def refresh_late() -> None:
        begin.set()
        assert wait_until(lambda: snapshots._others._thread is None)
        refresh()

    monkeypatch.setattr(snapshots._mutes, "refresh", refresh_late)
    snapshots.current()
    assert "other" in snapshots.current().groups

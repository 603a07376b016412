"""Alerts of 0.2.0 are problems of this release: what is open stays open, and receivers know it by its id."""

from __future__ import annotations

import tarfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming_app.alerts.problem import FIRING, HEALTH, RESOLVED, Problem
from streaming_app.tables.alerts_table import read_problems
from streaming_app.tables.alerts_upgrade import upgrade_alerts
from streaming_app.tables.reader import WarehouseReader
from tests.support.warehouses import arrow_schema

NOW = datetime(2026, 11, 27, tzinfo=timezone.utc)
ARCHIVE = Path(__file__).with_name("0.2.0.tar.xz")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The table `alerts` that 0.2.0 wrote, with its four alerts."""
    with tarfile.open(ARCHIVE) as archive:
        wanted = [one for one in archive.getmembers() if one.name.removeprefix("./").startswith("alerts/")]
        archive.extractall(tmp_path, wanted, filter="data")
    return tmp_path


def add(warehouse: Path, rule: str, minutes: float, *, group_id: str = "payments") -> None:
    """Append an alert of 0.2.0 that fires, and of which the pager knows."""
    table = DeltaTable(str(warehouse / "alerts"))
    at = NOW - timedelta(minutes=minutes)
    row = {"cluster": "default", "group_id": group_id, "rule": rule, "severity": "critical", "state": "firing"}
    row |= {"pending_since": at, "opened_at": at, "resolved_at": None, "summary": rule, "details": '{"tasks": 3}'}
    sent = {"sink": "pager", "event": "firing", "sent_at": at, "attempts": 1, "error": None, "repeat": None}
    schema = pa.schema(table.schema().to_arrow())
    names = {field.name for field in schema.field("deliveries").type.value_type}
    row["deliveries"] = [{name: value for name, value in sent.items() if name in names}]
    write_deltalake(table, pa.Table.from_pylist([row], schema), mode="append")


def upgraded(warehouse: Path) -> list[Problem]:
    assert upgrade_alerts(DeltaTable(str(warehouse / "alerts")), arrow_schema("alerts"), NOW)
    assert not upgrade_alerts(DeltaTable(str(warehouse / "alerts")), arrow_schema("alerts"), NOW)
    return read_problems(WarehouseReader(warehouse), "true")


def test_what_0_2_0_wrote_is_there_with_the_rules_of_this_release(warehouse: Path) -> None:
    before = DeltaTable(str(warehouse / "alerts")).to_pyarrow_table().to_pylist()
    after = upgraded(warehouse)
    assert len(before) == 4
    assert {(one.group_id, one.since, one.severity) for one in after} == {
        (row["group_id"], row["pending_since"], row["severity"]) for row in before
    }
    assert not {one.rule for one in after} & {"StreamsGroupNotReady", "StreamsGroupRebalanceStuck"}


def test_of_several_alerts_about_the_health_of_a_group_the_oldest_stays_open_and_the_others_are_told_to_end(
    warehouse: Path,
) -> None:
    add(warehouse, "StreamsGroupNoProgress", 10)
    add(warehouse, "StreamsGroupLagHigh", 5)
    add(warehouse, "StreamsGroupsJobBehind", 5, group_id="other")
    mine = [one for one in upgraded(warehouse) if one.group_id == "payments"]
    (still_open,) = [one for one in mine if one.state == FIRING]
    (ended,) = [one for one in mine if one.state == RESOLVED]
    assert (still_open.rule, still_open.subject, still_open.evidence) == ("StreamsGroupStalled", HEALTH, {"tasks": 3})
    assert still_open.alert_id == f"default/StreamsGroupNoProgress/payments/{still_open.since.isoformat()}"
    assert (ended.rule, ended.ended_at) == ("StreamsGroupBehind", NOW)
    assert [one.event for one in ended.deliveries if one.sent_at is None] == [RESOLVED]

"""What is set aside: `status` shows it, and `status --release` asks for a group again."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from streaming_app.checks.verification import WarehouseTables
from streaming_app.job_status import JobStatus, UnknownType
from streaming_app.tables.request_files import ReleaseRequests
from tests.cli.commands import as_json, output
from tests.long.hostile import STORED, effective_characters
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse

AT = datetime(2026, 11, 24, 9, tzinfo=timezone.utc)
MARKS = {"set_aside_at": AT, "set_aside_release": "0.2.0", "client_host": "/10.0.0.9"}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    append(
        path,
        "groups",
        group_row("orders"),
        group_row("bad", set_aside_reason="TypeError: why", **MARKS),
        group_row(STORED, set_aside_reason=STORED, **MARKS),
    )
    record = {"topic": "t", "partition": 0, "timestamp": AT, "error_kind": "MalformedRecord", "message": "short"}
    append(path, "quarantine", *({**record, "group_id": STORED, "offset": offset} for offset in range(3)))
    write_heartbeat(path)
    return path


def test_status_shows_groups_and_records_that_are_set_aside(warehouse: Path) -> None:
    text = output(warehouse, "status")
    assert "TypeError: why" in text
    assert "MalformedRecord" in text
    assert "orders" not in text
    assert effective_characters(text) == set()
    shown = as_json(warehouse, "status")
    assert {row["group"] for row in shown["set_aside"]} == {"bad", STORED}
    assert [(row["group"], row["records"]) for row in shown["quarantined"]] == [(STORED, 3)]


def test_status_counts_records_of_an_unknown_type_and_not_their_samples(tmp_path: Path) -> None:
    path = make_warehouse(tmp_path)
    sample = {"topic": "t", "partition": 0, "offset": 7, "timestamp": AT, "error_kind": "UnknownRecordType"}
    append(path, "quarantine", {**sample, "group_id": "one-of-many"})
    seen = UnknownType(12_000, AT, AT + timedelta(hours=2))
    write_heartbeat(path, facts=JobStatus(started_at=AT, unknown_types={24: seen}))
    text = output(path, "status")
    assert "type 24   12,000 records from 2026-11-24 09:00:00Z to 2026-11-24 11:00:00Z, not read" in text
    assert "one-of-many" not in text
    shown = as_json(path, "status")
    assert (shown["job"]["facts"]["unknown_types"]["24"][0], shown["quarantined"]) == (12_000, [])


def test_verify_leaves_them_out(warehouse: Path) -> None:
    partial = WarehouseTables(warehouse, "default").partial_groups()
    assert partial == {"bad": "it is set aside: TypeError: why", STORED: f"it is set aside: {STORED}"}


@pytest.mark.parametrize("group_id", ["bad", STORED], ids=["plain", "hostile"])
def test_a_release_is_a_request_to_the_job(warehouse: Path, group_id: str) -> None:
    output(warehouse, "status", "--release", group_id)
    requests = ReleaseRequests(warehouse, "default")
    assert group_id in requests.group_ids()
    requests.remove(group_id)
    requests.remove(group_id)
    assert group_id not in requests.group_ids()


def test_a_group_that_does_not_exist_is_not_released(warehouse: Path) -> None:
    said = output(warehouse, "status", "--release", "bad", "--release", "no-such", code=1)
    assert said == "Error: No group 'no-such' in cluster 'default': `streams-groups list --type all` shows all\n"
    assert ReleaseRequests(warehouse, "default").group_ids() == []

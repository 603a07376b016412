"""A group of Kafka Streams with the classic protocol in the views: rows of what it has, and who reads them."""

from pathlib import Path
from typing import Any

import pytest

from streaming_app.checks.verification import WarehouseTables
from streaming_app.errors import WarehouseError
from streaming_app.groups.row import to_row
from streaming_app.queries.described import find_groups
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from tests.groups.classic_records import P2, assignment, generation, records, subscription, thread
from tests.groups.records import fold
from tests.support.rows import group_row, member_row, task_row
from tests.support.warehouses import append, make_warehouse

THREADS = (
    thread("m1", subscription(sums={(0, 0): -2}), assignment([(0, 0)])),
    thread("m2", subscription(P2, {(0, 0): 5}), assignment([(1, 0)], [(0, 0)])),
)
OF_RECORD = {"record_type": 2, "member_id": "", "protocol_type": "consumer", "protocol": "stream", "deleted": False}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A classic group `g`, a streams group `s`, a row of an older release, and a deleted classic group."""
    made = make_warehouse(tmp_path)
    classic = to_row("default", fold(records(generation(1, *THREADS))).group)
    deleted = to_row("default", fold(records(generation(1, *THREADS), None)).group) | {"group_id": "gone"}
    older = {"protocol": None, "members": [member_row("o1")], "assignments": [task_row("o1", "0_0")]}
    append(made, "groups", classic, deleted, group_row("s", protocol="streams"), group_row("older", **older))
    append(made, "group_records", {"group_id": "g", **OF_RECORD, "epoch": 1, "member_count": 2, "last_offset": 0})
    return made


def ask(warehouse: Path, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in WarehouseReader(warehouse).rows(query)]


def test_its_threads_tasks_and_topics_are_rows_with_the_protocol_and_older_rows_are_of_streams_groups(
    warehouse: Path,
) -> None:
    members = "SELECT group_id, protocol, member_id, member_epoch, client_version FROM members WHERE group_id <> 's'"
    assert ask(warehouse, f"{members} ORDER BY member_id") == [
        ("g", "classic", "m1", 1, 11),
        ("g", "classic", "m2", 1, 11),
        ("older", "streams", "o1", *ask(warehouse, "SELECT member_epoch, client_version FROM members")[-1]),
    ]
    tasks = (
        "SELECT member_id, role, subtopology_id FROM assignments WHERE protocol = 'classic' ORDER BY member_id, role"
    )
    assert ask(warehouse, tasks) == [("m1", "active", "0"), ("m2", "active", "1"), ("m2", "standby", "0")]
    topics = "SELECT subtopology_id, has_state FROM subtopologies WHERE group_id = 'g' ORDER BY subtopology_id"
    assert ask(warehouse, topics) == [("0", True), ("1", None)]


def test_of_those_that_read_streams_groups_only_lag_sees_it(warehouse: Path) -> None:
    location = Location.of(warehouse)
    assert set(WarehouseTables(location, "default").group_ids()) == {"older", "s"}
    tables = LagTables(warehouse, "default")
    assert {*tables.group_versions(tables.reader())["group_id"].to_pylist()} == {"g", "older", "s"}  # for lag by task
    reader = WarehouseReader(warehouse)
    assert [row["group_id"] for row in find_groups(reader, "default", None)] == ["older", "s"]
    with pytest.raises(WarehouseError, match="'g' is a classic group, not a streams group"):
        find_groups(reader, "default", ["g"])

"""`lag` and `describe --offsets` on tables that delta-rs wrote."""

import time
from pathlib import Path

import pytest

from streaming_app.tables.lag_tables import KnownUntil, LagTables
from tests.cli.commands import words
from tests.support.lag_harness import row
from tests.support.warehouses import append, make_warehouse

pytestmark = pytest.mark.slow

ALICE = {"member_id": "alice", "process_id": "p-1", "client_host": "10.0.0.1", "subtopology_id": "0"}
BOB = {"member_id": "bob", "process_id": "p-2", "client_host": "10.0.0.2", "subtopology_id": "0"}
ROWS = [
    row(partition=0, task_id="0_0", lag=10, lag_seconds=3.2, partition_time=1_795_000_000.001, **ALICE),
    row(
        partition=1,
        task_id="0_1",
        lag=500,
        lag_seconds=90.0,
        lag_seconds_is_lower_bound=True,
        offset_status="WAITS",
        **BOB,
    ),
    row(
        partition=2,
        task_id="0_2",
        subtopology_id="0",
        lag=70,
        lag_seconds=80.0,
        offset_status="UNOWNED",
        partition_time=0.0,
    ),
    row(
        partition=3, task_id="0_3", committed_offset=None, lag=None, lag_seconds=None, offset_status="UNKNOWN", **ALICE
    ),
    row(topic="old", lag=9999, lag_seconds=1e6, offset_status="LEFT_OVER"),
    row(group_id="plain", topic="clicks", lag=7, lag_seconds=1.0, leader=2, member_id="carol", client_host="10.0.0.2"),
]
OLDEST, NEWEST = "1970-01-01T00:00:00Z", "2026-11-18T11:06:40Z"
"""The stream time of partitions 2 and 0."""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    LagTables(path, "default").replace_lag(ROWS)
    two_hours_ago = time.time() - 2 * 3600 - 60
    LagTables(path, "default").replace_inputs(KnownUntil(two_hours_ago + 30, {}, {2: two_hours_ago}))
    never = {
        "committed_offset": None,
        "lag": None,
        "lag_seconds": None,
        "offset_status": "UNKNOWN",
        "log_end_offset": 9,
    }
    empty = row(group_id="elsewhere", topic="empty", log_start_offset=9, **never)
    LagTables(path, "other").replace_lag([row(group_id="elsewhere", lag=1), empty])
    commit = {"group_id": "only-committed", "topic": "t", "partition": 0, "committed_offset": 5, "last_offset": 1}
    append(path, "offset_commits", commit)
    return path


def test_groups_are_listed_with_the_largest_lag_first(warehouse: Path) -> None:
    head, *groups = words(warehouse, "lag")
    assert head[1:7] == ["LAG", "LAG-SECONDS", "OFFSET-STATUS", "PARTITIONS", "WITHOUT-COMMIT", "UNKNOWN"]
    assert groups == [
        ["payments", ">=580", ">=90", "UNOWNED", "4", "1", "1", "orders-1", "500", "-", f"{OLDEST}..{NEWEST}"],
        ["plain", "7", "1", "OK", "1", "0", "0", "clicks-0", "7", "2", "h", "ago", "-"],
    ]
    assert len(words(warehouse, "lag", "--by", "partition", "--top", "2")) == 1 + 2


def test_tasks_say_who_has_them(warehouse: Path) -> None:
    found = words(warehouse, "lag", "--group", "payments", "--by", "task")

    assert [line[:6] for line in found[1:]] == [
        ["payments", "0_1", "bob", "10.0.0.2", "500", ">=90"],
        ["payments", "0_2", "-", "-", "70", "80"],
        ["payments", "0_0", "alice", "10.0.0.1", "10", "3"],
        ["payments", "0_3", "alice", "10.0.0.1", "-", "-"],
    ]
    hosts = {line[0]: line[1] for line in words(warehouse, "lag", "--by", "host")[1:]}
    assert hosts == {"10.0.0.2": "507", "-": "70", "10.0.0.1": ">=10"}


def test_offsets_are_printed_as_kafka_prints_them(warehouse: Path) -> None:
    found = words(warehouse, "describe", "--group", "payments", "--offsets")
    assert found[0] == ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"]
    assert ["payments", "orders", "1", "500"] in found
    assert ["payments", "orders", "3", "-"] in found
    verbose = words(warehouse, "describe", "--group", "payments", "--offsets", "--verbose")
    assert verbose[0][3:7] == ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"]
    assert ["payments", "orders", "1", "90", "-", "100", "500"] in [line[:7] for line in verbose]
    assert verbose[0][7:] == ["TASK", "MEMBER", "PROCESS", "HOST", "LAG-SECONDS", "OFFSET-STATUS", "STREAM-TIME"]
    assert ["0_1", "bob", "p-2", "10.0.0.2", ">=90", "WAITS", "-"] in [line[7:] for line in verbose]
    assert [line[-1] for line in verbose[1:]] == ["-", NEWEST, "-", OLDEST, "-"]
    committed = words(warehouse, "describe", "--group", "only-committed", "--offsets")
    assert committed[1:] == [["only-committed", "t", "0", "-"]]  # no lag of it is known


def test_nothing_waits_in_a_log_without_records_of_which_there_is_no_commit(warehouse: Path) -> None:
    found = words(warehouse, "describe", "elsewhere", "--offsets", "--cluster", "other")
    assert found[1:] == [["elsewhere", "empty", "0", "0"], ["elsewhere", "orders", "0", "1"]]

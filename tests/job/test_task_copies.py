"""What the poller asks the brokers for, and what it writes."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming_app.groups import task_copies
from streaming_app.groups.row import to_row
from streaming_app.groups.snapshot import GroupSnapshot, group_snapshot
from streaming_app.groups.task_copies import CopiesSum, TaskCopy
from streaming_app.job import copies_service
from streaming_app.job.copies_service import TaskCopies
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import GroupError
from streaming_app.tables.task_copies_table import TaskCopiesTable
from tests.groups.classic_records import assignment, generation, records, subscription, thread
from tests.groups.records import fold
from tests.support.a_job import a_job
from tests.support.healthy_group import healthy_group
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse

NOW = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)


def tasks(*partitions: int) -> list[dict[str, Any]]:
    return [{"subtopology_id": "0", "partitions": list(partitions)}]


def offset(value: int) -> list[dict[str, Any]]:
    return [{"subtopology_id": "0", "partition": 0, "offset": value}]


class FakeBrokers:
    """Describes groups with an active copy and a standby of one task."""

    is_worn = False

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.failures: dict[str, GroupError] = {}
        self.standby_offset = 40
        self.restored_offset: int | None = None
        self.gone: set[str] = set()
        self.stateless: set[str] = set()

    def describe(self, group_ids: Sequence[str]) -> list[dict[str, Any]]:
        self.asked.append(sorted(group_ids))
        return [
            {"group_id": one, "error_code": error.code, "error_message": error.message}
            if (error := self.failures.get(one))
            else self._group(one)
            for one in group_ids
        ]

    def _group(self, group_id: str) -> dict[str, Any]:
        changelogs = [] if group_id in self.stateless else [{"name": "c"}]
        reported = [] if group_id in self.stateless else offset(self.standby_offset)
        restored = [] if self.restored_offset is None else offset(self.restored_offset)
        none = {"standby_tasks": [], "warmup_tasks": []}
        members = [
            ("a", restored, {"active_tasks": tasks(0), **none}),
            ("b", reported, {**none, "active_tasks": [], "standby_tasks": tasks(0)}),
        ]
        return {
            "group_id": group_id,
            "error_code": 0,
            "topology": {"subtopologies": [{"subtopology_id": "0", "state_changelog_topics": changelogs}]},
            "members": [
                {
                    "member_id": name,
                    "process_id": f"p-{name}",
                    "client_host": f"/{name}",
                    "task_offsets": known,
                    "task_end_offsets": offset(100) if known else [],
                    "assignment": assignment,
                }
                for name, known, assignment in members
                if name not in self.gone
            ],
        }


class FakeTable(TaskCopiesTable):
    def __init__(self) -> None:
        self.rows: list[TaskCopy] = []
        self.writes = 0

    def read(self) -> list[TaskCopy]:
        return self.rows

    def replace(self, copies: Sequence[TaskCopy]) -> None:
        self.rows, self.writes = list(copies), self.writes + 1


def rows(group_ids: Sequence[str]) -> list[dict[str, Any]]:
    task = {"member_id": "a", "role": "active", "subtopology_id": "0", "partition": 0, "current": True}
    row = {
        "assignment_configs": {"num.standby.replicas": "1"},
        "members": [{"member_id": "a", "process_id": "p-a", "client_host": "/a", "member_epoch": 3}],
        "assignments": [task],
        "subtopologies": [{"subtopology_id": "0", "state_changelog_topics": [{"name": "c"}]}],
    }
    return [{**row, "group_id": group_id} for group_id in group_ids]


class Harness:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOW
        self.brokers, self.table, self.lines = FakeBrokers(), FakeTable(), list[str]()
        self.groups: dict[str, GroupSnapshot] = {"g": replace(healthy_group(NOW), group_id="g")}
        monkeypatch.setattr(StreamsGroupClient, "of", lambda _: self.brokers)
        monkeypatch.setattr(copies_service, "describe_each", FakeBrokers.describe)
        job = a_job(Path("/w"), self.lines.append, groups=lambda: dict(self.groups), now=lambda: self.now)
        self.poller = TaskCopies(job, lambda: dict.fromkeys(self.groups, 50))
        monkeypatch.setattr(self.poller, "_rows", rows)
        monkeypatch.setattr(self.poller, "_table", self.table)

    def poll(self, minutes: float = 1) -> None:
        self.now += timedelta(minutes=minutes)
        self.poller.tick()


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    return Harness(monkeypatch)


def test_a_copy_that_comes_on_has_the_time_at_which_it_is_done_from_its_second_report_on(harness: Harness) -> None:
    harness.poll()
    assert [(one.lag, one.ready_at) for one in harness.table.rows] == [(None, None), (60, None)]
    harness.brokers.standby_offset += 5
    harness.poll()
    assert [(one.lag, one.ready_at) for one in harness.table.rows] == [(None, None), (55, NOW + timedelta(minutes=13))]


def test_the_table_is_written_only_when_something_has_changed_and_sums_are_those_of_the_newest_copies(
    harness: Harness,
) -> None:
    assert (harness.poller.statuses(), harness.poller.sums()) == (None, {})
    harness.poll()
    harness.poll()
    assert (harness.table.writes, harness.poller.sums()["g"]["standby"]) == (1, CopiesSum(1, 60, 1))
    active, standby = harness.table.rows
    assert (active.lag, active.reported_at, standby.lag, standby.acceptable_lag) == (None, None, 60, 50)
    assert standby.reported_at == NOW + timedelta(minutes=1)
    harness.brokers.standby_offset = 90
    harness.poll()
    assert (harness.table.writes, harness.table.rows[1].lag) == (2, 10)
    assert harness.table.rows[1].reported_at == NOW + timedelta(minutes=3)
    assert harness.poller.sums()["g"]["standby"] == CopiesSum(1, 10)


def test_the_copies_of_a_member_that_left_go_at_the_next_pass(harness: Harness) -> None:
    harness.poll()
    harness.brokers.gone = {"b"}
    harness.poll(1 / 6)
    assert [one.member_id for one in harness.table.rows] == ["a", "b"]  # the log does not say so yet
    harness.groups["g"] = replace(harness.groups["g"], last_offset=harness.groups["g"].last_offset + 1)
    harness.poll(1 / 6)
    assert [one.member_id for one in harness.table.rows] == ["a"]


def test_a_group_is_asked_for_once_a_minute_and_at_each_pass_after_it_changed_and_while_it_restores(
    harness: Harness,
) -> None:
    def asked(passes: int) -> int:
        before = len(harness.brokers.asked)
        for _ in range(passes):
            harness.poll(1 / 6)
        return len(harness.brokers.asked) - before

    assert harness.poller.pause(0.1) == 10
    assert asked(12) == 2  # that it was so when the job started is no change
    harness.groups["g"] = replace(harness.groups["g"], assignment_epoch=8)
    assert asked(60) == 12 + 8
    harness.brokers.restored_offset = 30
    assert asked(60) > 54
    assert (harness.table.rows[0].role, harness.table.rows[0].lag) == ("restoring", 70)
    harness.brokers.restored_offset = 100
    assert asked(12) == 2


def test_nothing_is_computed_again_for_groups_whose_copies_stay(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.groups = {name: replace(harness.groups["g"], group_id=name) for name in ("a", "b", "c")}
    harness.brokers.standby_offset = 90
    harness.poll()
    harness.poll()
    summed, judged = list[str](), list[str]()
    sums, status = task_copies.sum_copies, task_copies.next_status
    monkeypatch.setattr(copies_service, "sum_copies", lambda found: summed.append(found[0].group_id) or sums(found))
    monkeypatch.setattr(
        copies_service, "next_status", lambda found, *more: judged.append(found[0].group_id) or status(found, *more)
    )
    harness.poll()
    harness.poll(1 / 6)
    assert (summed, judged, harness.brokers.asked[-1]) == ([], [], ["a", "b", "c"])
    with monkeypatch.context() as none_is_due:
        none_is_due.setattr(copies_service, "_version", pytest.fail)
        harness.poll(1 / 6)
    harness.groups["b"] = replace(harness.groups["b"], group_epoch=99)
    harness.poll(1 / 6)
    assert (summed, judged) == (["b"], ["b"])
    assert harness.poller.sums().keys() == {"a", "b", "c"}


def test_a_group_that_may_not_be_described_has_its_copies_from_the_log_and_one_line_says_so(harness: Harness) -> None:
    harness.brokers.failures = {"g": GroupError(30, "not authorized")}
    harness.poll()
    harness.poll()
    (row,) = harness.table.rows
    assert (row.process_id, row.role, row.task_offset, row.reported_at) == ("p-a", "active", None, None)
    (line,) = harness.lines
    assert "'g': GROUP_AUTHORIZATION_FAILED: not authorized; task copies need Describe" in line


def test_what_is_known_of_a_group_stays_while_its_coordinator_does_not_answer(harness: Harness) -> None:
    harness.poll()
    harness.brokers.failures = {"g": GroupError(15)}
    harness.groups["g"] = replace(harness.groups["g"], group_epoch=99)
    for _ in range(12):
        harness.poll(1 / 6)
    assert (harness.table.writes, len(harness.table.rows), harness.lines) == (1, 2, [])
    assert len(harness.brokers.asked) == 1 + 2  # once a minute, although its change is not seen yet


def test_of_groups_at_rest_a_pass_asks_for_some_in_turn(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_service, "_AT_REST", 1)
    harness.groups = {name: replace(harness.groups["g"], group_id=name) for name in ("a", "b", "c")}
    harness.brokers.standby_offset = 90
    for _ in range(4):
        harness.poll()
    assert harness.brokers.asked == [["a", "b", "c"], ["a"], ["b"], ["c"]]


def test_what_is_behind_lasts_while_the_group_rebalances(harness: Harness) -> None:
    harness.poll()
    (status,) = harness.poller.statuses().values()
    assert (status.standby_replicas, status.behind[0].fell_at) == (1, NOW + timedelta(minutes=1))
    harness.groups["g"] = replace(harness.groups["g"], state="Reconciling")
    harness.brokers.standby_offset = 100
    harness.poll()
    assert harness.poller.statuses() == {"g": status}
    harness.groups["g"] = replace(harness.groups["g"], state="Stable")
    harness.poll()
    assert harness.poller.statuses()["g"].behind == ()


# --- Groups with the classic protocol ---------------------------------------------------------------------------------


def test_copies_of_classic_groups_come_from_the_log_when_their_row_has_changed_also_without_brokers(
    tmp_path: Path,
) -> None:
    warehouse = make_warehouse(tmp_path)
    threads = thread("m1", subscription(sums={(0, 0): 7}), assignment([(0, 0)])), thread("m2")
    row = to_row("default", fold(records(generation(1, *threads), first=4)).group)
    append(warehouse, "groups", row, group_row("s"))
    newest = {"g": group_snapshot(row)}
    table = TaskCopiesTable(warehouse, "default")

    def poller() -> TaskCopies:
        return TaskCopies(a_job(warehouse, pytest.fail, groups=lambda: dict(newest)))

    def found() -> list[tuple[str, str, int | None, str]]:
        return [(one.group_id, one.role, one.task_offset, one.protocol) for one in table.read()]

    polled = poller()
    polled.tick()
    assert found() == [("g", "active", 7, "classic")]
    versions = DeltaTable(str(warehouse / "task_copies")).version()
    polled.tick()
    poller().tick()
    assert DeltaTable(str(warehouse / "task_copies")).version() == versions
    assert (polled.statuses(), polled.sums()) == ({}, {})
    newest.clear()
    polled.tick()
    assert found() == []

"""The loop that distinguishes lag from differences, with a simulated cluster, tables and clock."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from streaming_app.checks.verification import Comparison, Verification, VerifyError, WarehouseTables
from streaming_app.groups.partition import partition_of
from streaming_app.tables.checkpoint_offsets import CheckpointOffsets

TOPIC, PARTITIONS, G = "__consumer_offsets", 3, "g"
HOME = partition_of(G, PARTITIONS)


def row(epoch: int = 2, state: str = "Stable", *, readiness_recorded: bool = True) -> dict[str, Any]:
    empty: list[Any] = []
    return {
        "group_id": G,
        "state": state,
        "readiness_recorded": readiness_recorded,
        "group_epoch": epoch,
        "assignment_epoch": 2,
        "assigned_at": None,
        "topology_epoch": None,
        "members": empty,
        "assignments": empty,
        "subtopologies": empty,
    }


def description(epoch: int = 2, state: str = "Stable", error: int = 0) -> dict[str, Any]:
    known = {"error_code": error, "error_message": "", "group_id": G, "group_state": state, "group_epoch": epoch}
    return {**known, "assignment_epoch": 2, "topology": None, "members": []}


NOT_FOUND = description(error=69)
BEHIND = "g not compared: the job is {} offsets behind"
ONLY_BROKER = "g group: absent in the tables, Stable on the broker"


class VerifyHarness:
    """A cluster with one group, its tables and a clock; each call of a kind returns the next of its values.

    The last value is repeated.
    """

    def __init__(self, **values: list[Any]) -> None:
        self.values: dict[str, list[Any]] = {"listed": [[G]], "ends": [10], "processed": [10], **values}
        self.seconds = 0.0
        self.partial: dict[str, str] = {}
        self.progress: list[str] = []

    def _next(self, kind: str) -> Any:
        values = self.values[kind]
        return values.pop(0) if len(values) > 1 else values[0]

    def streams_groups(self) -> Iterable[str]:
        return self._next("listed")

    def describe(self, group_ids: Iterable[str]) -> list[Any]:
        return [self._next("descriptions") for _ in group_ids]

    def end_offsets(self, topic: str) -> dict[int, int]:
        assert topic == TOPIC
        return {**dict.fromkeys(range(PARTITIONS), 1000), HOME: self._next("ends")}

    def checkpoint_offsets(self) -> CheckpointOffsets:
        return CheckpointOffsets(TOPIC, {HOME: self._next("processed")})

    def group_ids(self) -> list[str]:
        one = self._next("rows")
        return [] if one is None or one["state"] == "Dead" else [G]

    def partial_groups(self) -> dict[str, str]:
        return self.partial

    def rows(self, group_ids: Sequence[str]) -> dict[str, Any]:
        assert group_ids == [G]
        one = self._next("rows")
        return {} if one is None else {G: one}

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def verify(self, timeout: float = 30) -> Comparison:
        return Verification(self, self, timeout, self.progress.append, self.now, self.sleep).run()


def lines(report: Comparison) -> list[str]:
    return [
        *map(str, report.differences),
        *(f"{one.group_id} not compared: {one.reason}" for one in report.not_compared),
    ]


def test_equal_sides_agree_without_waiting_though_the_job_is_behind_in_other_partitions() -> None:
    harness = VerifyHarness(rows=[row()], descriptions=[description()])
    report = harness.verify()
    assert report == Comparison(agreeing=1)
    assert report.agrees
    assert harness.seconds == 0


def test_lag_is_waited_for_and_is_not_a_difference() -> None:
    harness = VerifyHarness(processed=[4, 4, 4, 7, 10], rows=[row(3), row(4)], descriptions=[description(4)])
    assert harness.verify().agrees
    assert "waiting for the job, which is 6 offsets behind" in harness.progress


def test_the_time_that_the_brokers_take_does_not_count_towards_the_timeout() -> None:
    class SlowBrokers(VerifyHarness):
        def describe(self, group_ids: Iterable[str]) -> list[Any]:
            self.seconds += 40
            return super().describe(group_ids)

    harness = SlowBrokers(processed=[4, 4, 4, 7, 10], rows=[row(3), row(4)], descriptions=[description(4)])
    assert harness.verify(timeout=30).agrees


def test_a_group_of_which_only_a_part_is_kept_is_not_described_as_its_description_may_be_too_large() -> None:
    harness = VerifyHarness(rows=[row(3)], descriptions=[])
    harness.partial = {G: "it is over its budget", "other": "it is set aside"}
    assert lines(harness.verify()) == ["g not compared: it is over its budget"]


UNKNOWN = {"state": "Unknown", "readiness_recorded": False}
EPOCH_DIFFERS = "g group_epoch: 3 in the tables, 4 on the broker"


REPORTED = {
    "differs while the job is behind": (
        {"processed": [4], "rows": [row(3)], "descriptions": [description(4)]},
        5,
        BEHIND.format(6),
    ),
    "changes all the time": (
        {"rows": [row(1)], "descriptions": [description(epoch) for epoch in range(2, 200)]},
        5,
        "g not compared: it changed during each comparison",
    ),
    "changed and changed back": (
        {"rows": [row(), row(state="Reconciling"), row()], "descriptions": [description()]},
        30,
        None,
    ),
    "differs in a second comparison, too": ({"rows": [row(3)], "descriptions": [description(4)]}, 30, EPOCH_DIFFERS),
    "differs just before the timeout": ({"rows": [row(3)], "descriptions": [description(4)]}, 0, EPOCH_DIFFERS),
    "differs once, then the job falls behind": (
        {"ends": [10, 10, 20], "rows": [row(3)], "descriptions": [description(4)]},
        5,
        BEHIND.format(10),
    ),
    "only the broker has it": ({"rows": [None], "descriptions": [description()]}, 30, ONLY_BROKER),
    "only the tables have it": (
        {"listed": [[]], "rows": [row()], "descriptions": [NOT_FOUND]},
        30,
        "g group: Stable in the tables, absent on the broker",
    ),
    "neither side has it": ({"rows": [None], "descriptions": [NOT_FOUND]}, 30, None),
    "Dead and not listed: not described": ({"listed": [[]], "rows": [row(state="Dead")], "descriptions": []}, 30, None),
    "a state that a 4.1 log does not contain, and another difference": (
        {"rows": [row(3, **UNKNOWN)], "descriptions": [description(4, state="NotReady")]},
        30,
        EPOCH_DIFFERS,
    ),
}


@pytest.mark.parametrize(("values", "timeout", "found"), REPORTED.values(), ids=REPORTED)
def test_what_is_reported(values: dict[str, Any], timeout: float, found: str | None) -> None:
    report = VerifyHarness(**values).verify(timeout)
    assert lines(report) == ([found] if found else [])
    assert report.agrees == (found is None)


def test_a_state_that_a_4_1_log_does_not_contain_is_counted_and_is_not_a_difference() -> None:
    report = VerifyHarness(rows=[row(**UNKNOWN)], descriptions=[description(state="NotReady")]).verify()
    assert report == Comparison(agreeing=1, stateless=1)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (29, "TOPIC_AUTHORIZATION_FAILED; grant Describe on its topics"),
        (30, "GROUP_AUTHORIZATION_FAILED; grant Describe on it"),
    ],
)
def test_a_missing_acl_is_reported_at_once_instead_of_asked_for_until_the_timeout(error: int, text: str) -> None:
    harness = VerifyHarness(rows=[row()], descriptions=[description(error=error)])
    assert lines(harness.verify()) == [f"g not compared: {text}"]
    assert harness.seconds == 0


def test_tables_that_cannot_be_of_this_cluster_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="belong to another cluster"):
        VerifyHarness(rows=[row()], descriptions=[description()], processed=[11]).verify()
    with pytest.raises(VerifyError, match="not finished a batch"):
        WarehouseTables(tmp_path, "default").checkpoint_offsets()

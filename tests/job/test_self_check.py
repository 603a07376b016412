"""The self-check of the running job, with brokers and tables that the test controls.

`test_self_check_live` has a group that differs, is read again, and is compared after the next start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from streaming_app.errors import JobError
from streaming_app.job.self_check import SelfCheck
from streaming_app.stream.job_state import JobState
from streaming_app.tables.checkpoint_offsets import CheckpointOffsets
from tests.checks.test_verification import NOT_FOUND, description, row
from tests.support.a_job import a_job

CONFIRM, INTERVAL = 60.0, 1_000.0
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
NOW = datetime(2026, 11, 21, 3, tzinfo=timezone.utc)


class SteppedCheck(SelfCheck):
    """One whose clock moves with the test, and with its own waiting."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.on_sleep()
        super().sleep(0)

    def on_sleep(self) -> None: ...


class SelfCheckHarness:
    """A cluster and the tables; `rows` and `epochs` hold the group epochs of both sides by group."""

    def __init__(self) -> None:
        self.epochs = {"a": 1, "b": 1}
        self.rows_by_id = {"a": 1, "b": 1}
        self.error: Exception | None = None
        self.error_codes: dict[str, int] = {}
        self.may_read, self.properties = True, NOWHERE
        self.read: list[list[str]] = []
        self.described: list[list[str]] = []
        self.health = JobState()
        self.stream_starts()
        self.lines: list[str] = []
        settings = {"self_check": {"interval": INTERVAL}}
        job = a_job(Path("/w"), self.lines.append, settings, health=self.health, connection=self)
        self.check = SteppedCheck(job, self.read_again)
        self.check._tables = self  # type: ignore[assignment]

    def stream_starts(self) -> None:
        self.health.started_reading(from_beginning=False, tombstone_retention=timedelta(hours=1))

    def turn(self, seconds: float = 0.0) -> None:
        """Let the check look what is due after so many seconds."""
        self.check.seconds += seconds
        self.check.tick_if_due()

    @contextmanager
    def use(self) -> Iterator[SelfCheckHarness]:
        if self.error:
            raise self.error
        yield self

    def streams_groups(self) -> Iterable[str]:
        return list(self.epochs)

    def describe(self, group_ids: Iterable[str]) -> list[Any]:
        self.described.append(list(group_ids))
        return [
            description(self.epochs[one], error=self.error_codes.get(one, 0)) if one in self.epochs else NOT_FOUND
            for one in self.described[-1]
        ]

    def end_offsets(self, topic: str) -> dict[int, int]:
        assert topic == "topic"
        return {0: 10}

    def checkpoint_offsets(self) -> CheckpointOffsets:
        return CheckpointOffsets("topic", {0: 10})

    def group_ids(self) -> list[str]:
        return list(self.rows_by_id)

    def partial_groups(self) -> dict[str, str]:
        return {}

    def rows(self, group_ids: Sequence[str]) -> dict[str, Any]:
        return {one: row(self.rows_by_id[one]) for one in group_ids if one in self.rows_by_id}

    def read_again(self, group_ids: Collection[str]) -> Collection[str]:
        """The stream ends for that, and with the next one another check begins."""
        self.read.append(list(group_ids))
        return group_ids if self.may_read else ()

    @property
    def status(self) -> Any:
        return self.health.status.self_check


@pytest.fixture
def harness() -> Iterator[SelfCheckHarness]:
    made = SelfCheckHarness()
    yield made
    made.check.close()


@pytest.mark.parametrize(
    "changes", [{"caught_up": False}, {"behind": 1}, {"failing_since": NOW}, {"brokers_away_since": NOW}], ids=str
)
def test_a_check_needs_a_job_that_is_at_the_end_of_the_topic(
    harness: SelfCheckHarness, changes: dict[str, Any]
) -> None:
    harness.health.nothing_new()
    harness.health._status = replace(harness.health.status, **changes)
    harness.turn()
    assert harness.status.runs == 0
    harness.health._status = replace(harness.health.status, caught_up=True, behind=0, failing_since=None)
    harness.health.topic_asked(is_answered=True, exists=True)
    for seconds, runs in ((0, 1), (INTERVAL - 1, 1), (1, 2)):
        harness.turn(seconds)
        assert harness.status.runs == runs


def test_a_difference_that_is_gone_a_minute_later_is_not_reported(harness: SelfCheckHarness) -> None:
    harness.rows_by_id["b"] = 7
    harness.health.nothing_new()
    harness.turn()
    harness.rows_by_id["b"] = 1
    harness.described.clear()
    harness.turn(CONFIRM)
    assert harness.described[0] == ["b"]
    assert (harness.lines, harness.status.differing, harness.read) == ([], 0, [])


def test_a_group_that_differs_again_is_reported_and_not_read_once_more(harness: SelfCheckHarness) -> None:
    harness.rows_by_id["b"], harness.may_read = 7, False
    harness.health.nothing_new()
    harness.turn()
    harness.turn(CONFIRM - 1)
    assert harness.lines == []
    harness.turn(1)
    assert harness.lines == [
        "self-check: the tables differ from the brokers in 1 group: b (group_epoch)",
        "self-check: groups to be read again: 0; not again, because of the last hour or their number: 1",
    ]
    assert (harness.status.differing, harness.status.repaired) == (1, 0)
    harness.epochs["b"] = 7
    harness.turn(INTERVAL)
    assert harness.status.differing == 0


def test_an_error_is_reported_once_until_a_comparison_succeeds(harness: SelfCheckHarness) -> None:
    harness.error = JobError("Not authorized: the principal lacks the ACL DESCRIBE")
    harness.health.nothing_new()
    for _ in range(3):
        harness.turn(INTERVAL)
    assert harness.status.failures == 3
    assert harness.lines == ["self-check: Not authorized: the principal lacks the ACL DESCRIBE"]
    assert harness.status.failure == "Not authorized: the principal lacks the ACL DESCRIBE"
    assert harness.status.last_run_at is None
    harness.error = None
    harness.turn(INTERVAL)
    assert harness.status.last_run_at is not None
    assert (harness.status.failure, harness.status.failed_at) == (None, None)
    harness.error = JobError("Not authorized: the principal lacks the ACL DESCRIBE")
    harness.turn(INTERVAL)
    assert len(harness.lines) == 2


def test_a_missing_acl_of_every_group_is_a_failure_and_of_some_a_line(harness: SelfCheckHarness) -> None:
    harness.error_codes = {"a": 29}
    harness.health.nothing_new()
    for _ in range(3):
        harness.turn(INTERVAL)
    reason = "cannot be compared: TOPIC_AUTHORIZATION_FAILED; grant Describe on its topics"
    assert harness.lines == [f"self-check: 1 group {reason}"]
    assert (harness.status.runs, harness.status.compared, harness.status.not_compared) == (3, 1, 1)
    assert harness.status.failures == 0
    harness.error_codes = {"a": 29, "b": 30}
    for _ in range(2):
        harness.turn(INTERVAL)
    assert harness.status.failures == 2
    assert harness.lines[1:] == [
        "self-check: no group can be compared: TOPIC_AUTHORIZATION_FAILED; grant Describe on its topics"
    ]


@pytest.mark.parametrize("fails", [True, False])
def test_a_comparison_during_which_the_stream_starts_again_counts_for_nothing(
    harness: SelfCheckHarness, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    describe = harness.describe

    def start_again(group_ids: Iterable[str]) -> list[Any]:
        harness.health.reading = None  # the stream prepares its start
        if fails:
            raise OSError("the checkpoint is gone")
        return describe(group_ids)

    harness.rows_by_id["b"] = 7
    harness.health.nothing_new()
    with monkeypatch.context() as patched:
        patched.setattr(harness, "describe", start_again)
        harness.turn()
    assert (harness.lines, harness.status.failures, harness.status.compared) == ([], 0, 0)
    harness.described.clear()
    harness.turn(INTERVAL)
    assert harness.described == []
    harness.rows_by_id["b"] = 1
    harness.stream_starts()
    harness.turn()
    assert (harness.status.differing, harness.status.compared) == (0, 2)


def test_a_check_ends_with_the_job_even_while_it_waits_and_reports_nothing(
    harness: SelfCheckHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.checkpoint_offsets = lambda: CheckpointOffsets("topic", {0: 4})
    harness.health.nothing_new()
    monkeypatch.setattr(harness.check, "on_sleep", harness.check.stopping.set)
    harness.turn()
    assert harness.described != []
    assert harness.check.seconds < CONFIRM
    assert (harness.lines, harness.status.failures) == ([], 0)

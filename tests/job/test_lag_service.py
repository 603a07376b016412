"""What the lag service writes and reports, with passes that a test gives it; tables are real."""

import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable
from kafka.errors import KafkaConnectionError

from streaming_app.job.lag_pass import LagPass, PassResult
from streaming_app.job.lag_service import LagService
from streaming_app.job_status import inputs
from streaming_app.kafka import connection
from streaming_app.lag.ends import LogEnds
from streaming_app.lag.model import Commit, LagRow
from streaming_app.lag.tracker import LagTracker
from streaming_app.tables.lag_tables import KnownUntil, LagTables
from streaming_app.tables.reader import WarehouseReader
from tests.support.a_job import AtTheEnd, a_job
from tests.support.lag_harness import row, work_of
from tests.support.waiting import wait_until
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow

Outcome = PassResult | Exception | Callable[[LagPass], PassResult]


class Passes:
    """Gives a service the results of its passes, 30 s apart."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.now, self.lines = make_warehouse(path), time.time(), list[str]()
        self.known: KnownUntil | None = None
        self.outcome: Outcome = self.result([])
        monkeypatch.setattr(LagPass, "run", lambda one, _admin: self._outcome(one))
        monkeypatch.setattr(connection.Admin, "of", Mock())
        self.service = self.start()

    def start(self, interval: float = 30.0) -> LagService:
        self.health = AtTheEnd()
        job = a_job(self.path, self.lines.append, {"lag": {"interval": interval}}, health=self.health)
        self.service = LagService(job, lambda: self.now)
        return self.service

    def result(self, rows: list[LagRow], **errors: set[str]) -> PassResult:
        known = self.known or KnownUntil(self.now - 3, {}, {2: self.now})
        return PassResult(rows, errors, self.now, 0.1, work_of(rows, self.now), known=known)

    def run(self, rows: list[LagRow], seconds: float = 30.0, **errors: set[str]) -> None:
        self.now += seconds
        self.outcome = self.result([one._replace(observed_at=self.now) for one in rows], **errors)
        self.service.attempt()

    def fail(self, error: Exception) -> None:
        self.outcome = error
        self.service.attempt()

    def _outcome(self, one: LagPass) -> PassResult:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome(one) if callable(self.outcome) else self.outcome

    def query(self, sql: str) -> list[dict[str, Any]]:
        return WarehouseReader(self.path).rows(sql)

    def version(self, table: str) -> int:
        return DeltaTable(str(self.path / table)).version()


@pytest.fixture
def passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Passes:
    return Passes(tmp_path / "warehouse", monkeypatch)


def test_rows_are_written_only_when_they_change_and_every_five_minutes_and_those_of_another_cluster_stay(
    passes: Passes,
) -> None:
    LagTables(passes.path, "other").replace_lag([row(lag=1)])
    passes.run([row(lag=10)])
    written = passes.version("lag")
    passes.run([row(lag=10)])
    assert passes.version("lag") == written
    passes.run([row(lag=11)])
    assert [one["lag"] for one in passes.query("SELECT lag FROM lag ORDER BY lag")] == [1, 11]
    assert passes.version("lag") == written + 1
    passes.run([row(lag=11)], 301)
    assert passes.version("lag") == written + 2
    passes.run([])
    assert [(one["cluster"], one["lag"]) for one in passes.query("SELECT cluster, lag FROM lag")] == [("other", 1)]


def test_rows_say_until_when_they_are_known_without_being_written_again(passes: Passes) -> None:
    rows = [row(leader=2, lag=10), row(partition=1, leader=3, lag=None), row(group_id="asked", leader=2)]
    query = "SELECT group_id, partition, CAST(date_part('epoch', known_until) AS BIGINT) AS at FROM lag ORDER BY 1, 2"

    def known() -> list[tuple[object, ...]]:
        return [tuple(one.values()) for one in passes.query(query)]

    read_until = int(passes.now)
    passes.known = KnownUntil(read_until, {}, {2: read_until + 1})
    passes.run(rows)
    assert known() == [("asked", 0, read_until), ("payments", 0, read_until), ("payments", 1, None)]
    written = passes.version("lag")
    passes.known = KnownUntil(read_until, {"asked": read_until + 99}, {2: read_until + 98, 3: read_until - 50})
    passes.run(rows)

    assert known() == [("asked", 0, read_until + 98), ("payments", 0, read_until), ("payments", 1, read_until - 50)]
    assert passes.version("lag") == written
    of_groups = "FROM lag_sums WHERE summed_by = 'group' ORDER BY group_id"
    sums = passes.query(f"SELECT CAST(date_part('epoch', known_until) AS BIGINT) AS at {of_groups}")
    assert [one["at"] for one in sums] == [read_until + 98, read_until - 50]
    of_cluster = WarehouseReader(passes.path, "default").rows("SELECT count(known_until) AS n FROM lag")
    assert of_cluster == [{"n": 3}]


@pytest.mark.slow
def test_the_history_has_what_changed_once_a_minute_starts_of_logs_and_a_row_an_hour_while_nothing_happens(
    passes: Passes,
) -> None:
    for end in (100, 200, 300, 300, 300, 400):
        passes.run([row(log_end_offset=end, lag=end - 90, log_start_offset=7)])
    for _ in range(50):
        passes.run([row(log_end_offset=400, lag=310, log_start_offset=7)], 150)  # for two hours and five minutes
    passes.run([row(log_end_offset=400, lag=310, log_start_offset=90)], 60)

    found = passes.query("SELECT lag, log_start_offset AS start FROM lag_history ORDER BY observed_at")
    assert [tuple(one.values()) for one in found] == [
        *((10, 7), (210, 7), (310, 7)),
        *((310, 7), (310, 7)),  # an hour each
        (310, 90),
    ]


def test_rows_that_could_not_be_written_to_the_history_are_written_after_the_next_pass(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(LagTables, "append_history", Mock(side_effect=OSError("no space left on device")))
        passes.run([row()])
    passes.run([row()])
    assert len(passes.query("SELECT 1 FROM lag_history")) == 1


def test_a_line_comes_for_what_is_new_of_what_brokers_do_not_tell_and_none_when_a_part_of_it_is_over(
    passes: Passes,
) -> None:
    """As in an election: a broker is away, and for one pass others do not lead its partitions yet."""
    for errors in (("BROKER_A", "NOT_LEADER"), ("BROKER_A",), ("BROKER_A",), ("BROKER_A", "BROKER_B"), ("BROKER_B",)):
        passes.run([], **{one: {"orders"} for one in errors})
    said = [line for line in passes.lines if "orders" in line]
    assert [("BROKER_A" in line, "NOT_LEADER" in line, "BROKER_B" in line) for line in said] == [
        (True, True, False),
        (True, False, True),
    ]
    passes.run([])
    assert passes.lines[-1] == "lag: the lag of all partitions is known"
    passes.run([], BROKER_B={"orders"})
    assert "BROKER_B" in passes.lines[-1]


def test_a_service_that_never_reached_a_broker_ends_at_once_and_keeps_what_was_known(
    passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = LagTracker()
    samples.restore_samples("orders", 0, "id", [(1, 1.0), (2, 2.0)])
    LagTables(passes.path, "default").replace_samples(samples.samples)

    monkeypatch.setattr(connection.Admin, "of", Mock(side_effect=KafkaConnectionError("away")))
    service = passes.start(interval=0.01)
    service.start()
    assert wait_until(lambda: service.failures > 2)
    service.close()

    assert len(passes.lines) == 1
    assert passes.query("SELECT topic, topic_id, end_offsets FROM log_ends") == [
        {"topic": "orders", "topic_id": "id", "end_offsets": [1, 2]}
    ]


def test_a_restart_restores_the_rows_and_the_samples(passes: Passes) -> None:
    samples = LagTracker()
    samples.restore_samples("orders", 0, "id", [(90, 1.0), (100, 2.0)])
    LagTables(passes.path, "default").replace_samples(samples.samples)
    passes.run([row(lag=10, unmoved_since=5.0, waits_since=4.0)])
    passes.start()
    commits = {("payments", "orders", 0): Commit(90, "id", 0, 1.0)}
    ends = {("orders", 0): LogEnds(100, 0, 100, "id")}
    passes.outcome = lambda one: passes.result(one.tracker.observe(commits, ends, {}, passes.now))

    passes.now += 600
    passes.service.attempt()

    assert passes.service.result is not None
    (found,) = passes.service.result.rows
    assert (found.offset_status, found.unmoved_since, found.waits_since) == ("WAITS", 1.0, 4.0)
    assert found.lag_seconds == pytest.approx(passes.now - 1.0)


def test_the_work_of_groups_is_known_as_long_as_passes_succeed(passes: Passes) -> None:
    assert passes.service.newest() is None
    passes.run([row(offset_status="REWOUND", offset_status_since=passes.now)])
    known = passes.service.newest()
    assert known is not None
    assert [one.rewound is not None for one in known.work.values()] == [True]
    passes.fail(KafkaConnectionError())
    passes.now += 100
    assert passes.service.newest() == known
    passes.now += 30
    assert passes.service.newest() is None
    passes.run([row()])
    newest = passes.service.newest()
    assert newest is not None
    assert [one.rewound for one in newest.work.values()] == [None]


def test_passes_that_fail_are_reported_once_and_told_to_the_job_until_one_succeeds_and_the_rows_stay(
    passes: Passes,
) -> None:
    health = passes.health
    passes.run([row(lag=10)])
    passes.fail(KafkaConnectionError("no broker"))
    failing_since = health.status.lag_failing_since
    assert failing_since is not None
    passes.fail(KafkaConnectionError("no broker"))
    assert health.status.lag_failing_since == failing_since
    assert "No Kafka broker" in (health.status.lag_failure or "")
    assert [one["lag"] for one in passes.query("SELECT lag FROM lag")] == [10]
    passes.run([row()])
    assert (health.status.lag_failing_since, health.status.lag_failure) == (None, None)
    failed, known = passes.lines
    assert failed.startswith("lag: not known at present: No Kafka broker answers at 127.0.0.1:1")
    assert known == "lag: known again"
    answered_at = datetime.fromtimestamp(passes.now, timezone.utc)
    assert {one.name: one.at for one in inputs(health.status)}["log ends of broker 2"] == answered_at

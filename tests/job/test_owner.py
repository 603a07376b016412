"""The record of the job that owns a cluster: who may take it, how long a job waits, and what its owner learns."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from streaming_app.errors import JobError, OtherOwnerError
from streaming_app.job import owner
from streaming_app.job.owner import Clock, OwnerRecord, owning, read_owner
from streaming_app.job.stopping import StopRequestedError
from streaming_app.job_status import JobStatus
from streaming_app.tables.heartbeat_file import HeartbeatRecord, heartbeat_path
from streaming_app.tables.location import Location
from tests.support.waiting import wait_until

NEVER = Event()
START = datetime(2026, 11, 24, 8, tzinfo=timezone.utc)
HERE = socket.gethostname()


class Passing:
    """A clock that nothing moves but the waiting of a job."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.clock = Clock(lambda: START + timedelta(seconds=self.waited), lambda: self.waited, self._wait)

    def _wait(self, event: Event, seconds: float) -> bool:
        self.waited += seconds
        return event.is_set()


@pytest.fixture
def passing() -> Passing:
    return Passing()


@pytest.fixture
def place(tmp_path: Path) -> Location:
    heartbeat_path(tmp_path, "default").path.parent.mkdir()
    return Location.of(tmp_path)


@pytest.fixture
def beat(place: Location) -> Callable[..., None]:
    """Writes the heartbeat of a job so many seconds after the start, by default of one on another machine."""

    def write(second: float, host: str = "other", every_seconds: float = 0, **settings: Any) -> None:
        at = START + timedelta(seconds=second)
        facts = JobStatus(started_at=at)
        record = HeartbeatRecord(
            at=at, every_seconds=every_seconds, facts=facts, records_seen=0, last_batch_seconds=0, host=host, **settings
        )
        heartbeat_path(place, "default").write_text(record.model_dump_json())

    return write


def taken(
    place: Location,
    lock_id: str = "lock",
    report: Callable[[str], None] = pytest.fail,
    passing: Passing | None = None,
) -> Any:
    return owning(place, "default", lock_id, report, NEVER, (passing or Passing()).clock)


def leave(place: Location, lock_id: str, age: float = 0.0, **values: Any) -> OwnerRecord:
    """Leave the record of an owner that took it so many seconds ago, and did not say that it ended."""
    record = OwnerRecord(3, "run", lock_id, 7, HERE, START - timedelta(seconds=age), **values)
    store = owner._Store(owner.owner_location(place, "default"))
    assert store.write(store.read()[1], record)
    return record


def test_each_owner_has_a_term_one_higher_and_says_that_it_ended(place: Location) -> None:
    assert read_owner(place, "default") is None
    for term, lock_id in enumerate(("one", "another", "another"), 1):
        with taken(place, lock_id) as ownership:
            ownership.check()
            record = read_owner(place, "default")
            assert record == ownership.record
            assert (record.term, record.lock_id, record.host, record.ended) == (term, lock_id, HERE, False)
        last = read_owner(place, "default")
        assert last == record._replace(ended=True)
    with taken(place) as ownership:
        shutil.rmtree(owner.owner_location(place, "default").path)
        ownership.check()  # no other owner is known


def test_an_owner_with_another_lock_on_a_host_of_the_same_name_is_an_error_while_its_heartbeats_continue(
    place: Location, beat: Callable[..., None]
) -> None:
    leave(place, "other", age=100)
    beat(0, host=HERE, every_seconds=30)
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        beat(1, host=HERE, every_seconds=30)

    with pytest.raises(JobError, match=r"Another job already writes cluster 'default' .*: process 7 on "):
        taken(place, report=on_line).__enter__()
    assert len(lines) == 1
    assert "process 7 on" in lines[0]
    assert read_owner(place, "default").term == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("lock_id", "age", "ended", "heartbeat", "waited"),
    [
        ("lock", 0, False, {"second": 0, "every_seconds": 30}, None),
        ("other", 0, True, None, None),
        ("other", 1_000, False, {"second": -500}, None),
        ("other", 1_000, False, {"second": 0, "stopped": True}, None),
        ("other", 100, False, {"second": -0.5}, 6),
        ("other", 0, False, None, 120),
        ("other", 0, False, {"second": 86_400}, 120),
    ],
    ids=[
        *("its own lock, killed", "ended", "silent for long", "stopped", "silent for 0.5 s", "no heartbeat yet"),
        "a clock that is ahead",
    ],
)
def test_an_owner_is_waited_for_until_its_heartbeats_are_old(
    place: Location,
    beat: Callable[..., None],
    passing: Passing,
    lock_id: str,
    age: float,
    ended: bool,
    heartbeat: dict[str, Any] | None,
    waited: float | None,
) -> None:
    leave(place, lock_id, age, ended=ended)
    if heartbeat:
        beat(**heartbeat)
    lines: list[str] = []
    with taken(place, report=lines.append, passing=passing) as ownership:
        assert ownership.record.term == 4
    assert (len(lines), passing.waited) == ((1, waited) if waited else (0, 0))


def test_a_job_of_a_release_without_a_record_is_known_by_its_heartbeat(
    place: Location, beat: Callable[..., None]
) -> None:
    beat(0)
    with pytest.raises(JobError, match=r"Another job already writes .* on other"):
        taken(place, report=lambda _: beat(1)).__enter__()
    beat(0, host=HERE)  # the lock of this host excludes it
    with taken(place):
        pass
    heartbeat_path(place, "default").write_text('{"of": "another release"}')
    with taken(place, "third"):
        pass


@pytest.mark.slow
def test_of_jobs_that_take_it_at_the_same_moment_one_gets_it(place: Location) -> None:
    jobs = 6

    def race() -> list[int]:
        begin, refused = threading.Barrier(jobs), list[int]()

        def take(number: int) -> int | None:
            stop = Event()
            begin.wait()
            try:
                with owning(place, "default", f"lock-{number}", lambda _: stop.set(), stop) as mine:
                    assert wait_until(lambda: len(refused) == jobs - 1)
                    return mine.record.term
            except (JobError, StopRequestedError):  # overtaken, or waiting for the owner's heartbeats
                refused.append(number)
                return None

        with ThreadPoolExecutor(jobs) as threads:
            return [term for term in threads.map(take, range(jobs)) if term is not None]

    assert [race() for _ in range(3)] == [[1], [2], [3]]


def test_a_paused_owner_learns_at_its_next_check_who_has_taken_over(place: Location) -> None:
    with taken(place, "first") as paused, taken(place, "second", report=lambda _: None) as newer:
        newer.check()
        with pytest.raises(OtherOwnerError, match=r"Another job has taken over cluster 'default': process \d+ on "):
            paused.check()
        paused.end()  # of one that lost it
        newer.check()
        assert read_owner(place, "default") == newer.record


def test_a_job_that_is_asked_to_stop_takes_nothing(place: Location) -> None:
    leave(place, "other")
    stop = Event()
    with pytest.raises(StopRequestedError):
        owning(place, "default", "lock", lambda _: stop.set(), stop, Passing().clock).__enter__()
    assert read_owner(place, "default").run_id == "run"  # type: ignore[union-attr]

"""Which job owns a cluster: who takes it at once, who waits and for how long, and what a replaced owner learns."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError, OtherOwnerError
from streaming_app.job import owner
from streaming_app.job.owner import SIGN_SECONDS, SILENT_SECONDS, ClusterOwner, owner_location, owning, state_directory
from streaming_app.job.stopping import StopRequestedError
from streaming_app.tables.kept_table import table_to_write
from streaming_app.tables.location import Location
from tests.support.fencing import CLUSTER, claimed, race
from tests.support.s3_server import s3_server
from tests.support.warehouses import make_warehouse

STORE = Location.of("s3a://bucket/warehouse")
HERE = socket.gethostname()


class Passing(Event):
    """A clock that nothing moves but the waiting of a job, and what happens at some times; set, the job is to stop."""

    def __init__(self, *, every: Callable[[], object] | None = None, times: int = 1_000_000) -> None:
        """`every`: what happens so many times, each time that a heartbeat is due."""
        super().__init__()
        self.now, self._every, self._left = 0.0, every, times

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout
        is_due = self.now // SIGN_SECONDS < (self.now + timeout) // SIGN_SECONDS
        self.now += timeout
        if is_due and self._every and self._left:
            self._left -= 1
            self._every()
        return self.is_set()


def config_of(warehouse: Location, directory: Path, *, once: bool = False) -> JobConfig:
    values = {"bootstrap_server": "h:1", "warehouse": warehouse, "cluster": CLUSTER, "state_dir": directory}
    return JobConfig.model_validate({**values, "once": once})


class Job:
    """A job whose lock is in a directory of its own, as one on another host has, or in that of another one."""

    def __init__(self, warehouse: Path | str, directory: Path) -> None:
        self.warehouse, self.directory = Location.of(warehouse), directory
        self.lines: list[str] = []
        self.waited_for: list[str] = []

    def owns(self, passing: Passing | None = None, *, once: bool = False) -> Any:
        passing = passing or Passing()
        config = config_of(self.warehouse, self.directory, once=once)
        return owning(config, self.lines.append, passing, self.waited_for.append, lambda: passing.now)

    def is_killed(self) -> ClusterOwner:
        """Own the cluster, and leave it as a job that is killed does."""
        with self.owns() as mine:
            mine.end = lambda: None
        return mine


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], Job]:
    return lambda name: Job(tmp_path, tmp_path / name)


Jobs = Callable[[str], Job]


def last_commit(warehouse: Path | Location) -> dict[str, Any]:
    return DeltaTable(str(owner_location(Location.of(warehouse), CLUSTER))).history(1)[0]


def test_each_owner_has_the_next_term_and_says_who_it_is_and_that_it_ended(job: Jobs, tmp_path: Path) -> None:
    for term, name in enumerate(("one", "another", "another"), 1):
        with job(name).owns() as mine:
            assert mine.term == term
            mine.sign()
            commit = last_commit(tmp_path)
            assert (commit["host"], commit["run_id"], commit["has_ended"]) == (HERE, mine.record.run_id, "")
        assert last_commit(tmp_path)["has_ended"]
        with pytest.raises(OtherOwnerError):
            mine.check_owner()  # by a thread that nobody has waited for
    with job("one").owns() as mine:
        shutil.rmtree(owner_location(Location.of(tmp_path), CLUSTER).path)
        mine.sign()  # no other owner is known
        assert last_commit(tmp_path)["run_id"] == mine.record.run_id


def test_a_record_that_is_lost_takes_no_term_back(job: Jobs, tmp_path: Path) -> None:
    claimed(make_warehouse(tmp_path), 7)
    with job("one").owns() as mine:
        assert mine.term == 8


def test_a_job_waits_while_signs_come_and_takes_over_after_the_last_one(job: Jobs) -> None:
    first, second = job("one").is_killed(), job("two")
    passing = Passing(every=first.sign, times=8)  # and then it is gone, two minutes after the other one began to wait
    with second.owns(passing) as mine:
        assert mine.term == 2
        assert 120 + SILENT_SECONDS <= passing.now <= 120 + SILENT_SECONDS + 5
    who = f"cluster default is written by {first.record.text}"
    seen = ("which may have ended", "seen 0 s ago", "seen 0 s ago")
    assert second.lines == [f"Waiting: {who}, {one}" for one in seen]
    assert second.waited_for[0] == f"{who}, which may have ended"
    assert f"{who}, seen 45 s ago" in second.waited_for


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "killed"])
def test_a_job_with_the_same_lock_waits_only_while_that_is_held(job: Jobs, ends: bool) -> None:
    holder, second = job("same").owns(), job("same")
    first = holder.__enter__()

    def leave() -> None:
        if not ends:
            first.end = lambda: None
        holder.__exit__(None, None, None)

    passing = Passing(every=leave, times=1)
    with second.owns(passing) as mine:
        assert (mine.term, passing.now) == (2, SIGN_SECONDS)
    assert len(second.lines) == 1


def test_a_lock_that_another_host_may_hold_as_well_proves_nothing(job: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job("same").is_killed()
    monkeypatch.setattr(socket, "gethostname", lambda: "other")
    passing = Passing()
    with job("same").owns(passing):
        assert passing.now >= SILENT_SECONDS


def test_an_owner_that_hangs_is_replaced_though_it_holds_the_lock(job: Jobs) -> None:
    passing = Passing()
    with job("same").owns() as first, job("same").owns(passing) as second:
        assert (first.term, second.term) == (1, 2)
        assert passing.now >= SILENT_SECONDS


@pytest.mark.parametrize("lock", ["one", "two"], ids=["the same lock", "another lock"])
def test_a_job_that_runs_once_refuses_to_wait_for_one_that_lives(job: Jobs, lock: str) -> None:
    with (
        job("one").owns() as first,
        pytest.raises(JobError, match="Another job already writes cluster 'default' into this warehouse: ") as refused,
    ):
        job(lock).owns(Passing(every=first.sign), once=True).__enter__()
    assert str(refused.value).endswith(f": {HERE} (pid {first.record.pid})")
    with job(lock).owns(once=True):
        pass


def test_a_job_that_waits_lives_through_a_warehouse_that_is_away(job: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job("one").is_killed()
    second, is_away = job("two"), False

    def open_table(place: Location) -> Any:
        if is_away:
            raise OSError("away")
        return table_to_write(place)

    def toggle() -> None:
        nonlocal is_away
        is_away = not is_away

    monkeypatch.setattr(owner, "table_to_write", open_table)

    with second.owns(Passing(every=toggle, times=2)) as mine:
        assert mine.term == 2
    assert any("Cannot read or write" in line for line in second.waited_for)
    toggle()
    with pytest.raises(JobError, match=r"Cannot read or write .*: away"):
        second.owns().__enter__()


@pytest.fixture(params=["in a directory", "in a store"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    if request.param == "in a directory":
        yield Location.of(tmp_path / "w")
        return
    with s3_server(tmp_path, monkeypatch.setenv) as store:
        yield Location.of(store.uri("w"))


@pytest.mark.slow
def test_of_jobs_that_take_it_at_the_same_moment_one_gets_it(warehouse: Location, tmp_path: Path) -> None:
    assert [race(warehouse, tmp_path, jobs=6) for _ in range(3)] == [[1], [2], [3]]


def test_a_paused_owner_learns_who_has_taken_over_before_it_does_anything(job: Jobs, tmp_path: Path) -> None:
    passing = Passing()
    with job("one").owns(passing) as paused, job("two").owns() as newer:
        paused.check_owner()  # it gave a sign just now
        passing.now += 2 * SIGN_SECONDS
        with pytest.raises(OtherOwnerError, match=r"Another job has taken over cluster 'default': \S+ \(pid \d+\); "):
            paused.check_owner()
        paused.end()  # of one that lost it
        newer.sign()
        assert last_commit(tmp_path)["run_id"] == newer.record.run_id


def test_an_owner_goes_on_while_it_cannot_give_a_sign(job: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    passing = Passing()
    with job("one").owns(passing) as mine, monkeypatch.context() as away:
        away.setattr(owner, "table_to_write", lambda _: (_ for _ in ()).throw(OSError("away")))
        passing.now += SILENT_SECONDS
        mine.check_owner()
        with pytest.raises(JobError, match=r"Cannot read or write .*_jobs: away"):
            mine.sign()


def test_the_log_of_owners_gets_checkpoints_and_a_heartbeat_is_no_commit(
    job: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "_COMMITS_PER_CHECKPOINT", 5)
    log = owner_location(Location.of(tmp_path), CLUSTER).path / "_delta_log"
    for term in range(1, 7):
        with job("one").owns() as mine:
            mine.maintain_log()
            commits = len(list(log.glob("*.json")))
            for _ in range(3):
                mine.sign()
            assert len(list(log.glob("*.json"))) == commits
            assert mine.term == term
            mine.check_owner()
    assert len(list(log.glob("*.checkpoint.parquet"))) >= 2


def test_an_owner_that_lives_again_while_another_job_is_about_to_take_over_stays(
    job: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, passing = job("one").is_killed(), Passing()

    def read_terms(*_: object) -> int:
        if passing.now < 2 * SILENT_SECONDS:
            first.sign()
        return 1

    monkeypatch.setattr(owner, "newest_term", read_terms)
    with job("two").owns(passing) as mine:
        assert mine.term == 2
        assert passing.now >= 2 * SILENT_SECONDS


@pytest.mark.slow
def test_a_heartbeat_in_a_store_is_a_copy_and_a_look_at_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server(tmp_path, monkeypatch.setenv) as store:
        first, second = Job(store.uri("w"), tmp_path / "one"), Job(store.uri("w"), tmp_path / "two")
        passing = Passing()
        with first.owns() as mine:
            mine.sign()
            with store.counted() as requests:
                mine.sign()
            assert requests == {"COPY": 1, "GET": 2}
            shutil.rmtree(store.root / "w" / "_jobs" / f"{CLUSTER}.owner")
            mine.sign()
            assert (store.root / "w" / "_jobs" / f"{CLUSTER}.owner").is_dir()
            mine.end = lambda: None
        alive = next(store.root.glob("**/*.alive"))

        def live() -> None:
            mine.sign()
            os.utime(alive, (passing.now, passing.now))  # the server tells whole seconds, of which none has passed

        passing = Passing(every=live, times=8)
        with second.owns(passing) as taker:
            assert taker.term == 2
            assert 120 + SILENT_SECONDS <= passing.now <= 120 + SILENT_SECONDS + 5
        with pytest.raises(OtherOwnerError):
            mine.sign()


def test_a_job_that_is_asked_to_stop_takes_nothing(job: Jobs, tmp_path: Path) -> None:
    first, stopping = job("one").is_killed(), Passing()
    stopping.set()
    with pytest.raises(StopRequestedError):
        job("two").owns(stopping).__enter__()
    assert last_commit(tmp_path)["run_id"] == first.record.run_id


def test_each_warehouse_in_a_store_has_a_lock_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, other = state_directory(STORE, None), state_directory(STORE / "other", None)
    assert one != other
    assert one.parent == other.parent == tmp_path / "streams-groups"

"""Where the lock is; that it excludes other jobs is tried in test_refusals.py."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from streaming_app.core.facts import JobFacts
from streaming_app.job import lock
from streaming_app.job.errors import JobError
from streaming_app.job.lock import only_job, state_directory, wait_for_silence
from streaming_app.serve.place import Place
from streaming_app.serve.running import Running, running_file

LATE = datetime(2026, 1, 1, tzinfo=timezone.utc)
STORE = Place.of("s3a://bucket/warehouse")


def test_the_lock_of_a_local_warehouse_is_in_it_unless_told_otherwise(tmp_path: Path) -> None:
    assert state_directory(Place.of(tmp_path), None) == tmp_path / "_jobs"
    assert state_directory(Place.of(tmp_path), Path("other")) == Path("other").absolute()


def test_the_lock_of_a_warehouse_in_a_store_is_in_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, other = state_directory(STORE, None), state_directory(STORE / "other", None)
    assert one != other
    assert {one.parent, other.parent} == {tmp_path / "streams-groups"}
    assert state_directory(STORE, tmp_path) == tmp_path


def test_a_directory_for_state_that_cannot_be_made_is_named_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(JobError, match="Cannot write state_dir: Not a directory"),
        only_job(tmp_path / "file" / "x", "default", "state_dir"),
    ):
        pass


@pytest.fixture
def sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Running]:
    """Leaves a sign of life of a job on another machine."""
    monkeypatch.setattr(lock, "_LOOK_SECONDS", 0.01)
    running_file(tmp_path, "default").path.parent.mkdir()

    def write(at: datetime, host: str = "other", **settings: Any) -> Running:
        facts = JobFacts(started_at=at)
        left = Running(at=at, every_seconds=0, facts=facts, records_seen=0, last_batch_seconds=0, host=host, **settings)
        running_file(tmp_path, "default").path.write_text(left.model_dump_json(), "utf-8")
        return left

    return write


def test_a_job_elsewhere_that_gives_signs_of_life_is_left_alone(tmp_path: Path, sign: Callable[..., Running]) -> None:
    sign(datetime.now(timezone.utc))
    told: list[str] = []

    def hear(line: str) -> None:
        told.append(line)
        sign(datetime.now(timezone.utc))

    with pytest.raises(JobError, match=f"Another job already writes .* process {os.getpid()} on other"):
        wait_for_silence(Place.of(tmp_path), "default", hear, Event())
    assert len(told) == 1


def test_a_job_elsewhere_that_gives_none_any_more_is_waited_for(tmp_path: Path, sign: Callable[..., Running]) -> None:
    told: list[str] = []
    sign(datetime.now(timezone.utc) - timedelta(seconds=4.5))  # it counts as alive for 5 s
    wait_for_silence(Place.of(tmp_path), "default", told.append, Event())
    assert "on other" in told[0]


def test_signs_of_jobs_that_are_over_or_of_this_machine_are_not_waited_for(
    tmp_path: Path, sign: Callable[..., Running]
) -> None:
    now = datetime.now(timezone.utc)
    for left in ({}, {"at": LATE}, {"at": now, "stopped": True}, {"at": now, "host": socket.gethostname()}):
        if left:
            sign(**left)
        wait_for_silence(Place.of(tmp_path), "default", pytest.fail, Event())
    running_file(tmp_path, "default").path.write_text('{"of": "another release"}', "utf-8")
    wait_for_silence(Place.of(tmp_path), "default", pytest.fail, Event())

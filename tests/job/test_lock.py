"""Where the lock is, and how jobs on other machines are detected; test_errors.py tests that the lock excludes jobs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from streaming_app.errors import JobError
from streaming_app.job import lock
from streaming_app.job.lock import ensure_no_other_job, hold_job_lock, state_directory
from streaming_app.job_status import JobStatus
from streaming_app.tables.heartbeat_file import HeartbeatRecord, heartbeat_path
from streaming_app.tables.location import Location

LATE = datetime(2026, 1, 1, tzinfo=timezone.utc)
STORE = Location.of("s3a://bucket/warehouse")


def test_the_lock_of_a_local_warehouse_is_in_it_unless_configured(tmp_path: Path) -> None:
    assert state_directory(Location.of(tmp_path), None) == tmp_path / "_jobs"
    assert state_directory(Location.of(tmp_path), Path("other")) == Path("other").absolute()


def test_the_lock_of_a_warehouse_in_a_store_is_in_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, other = state_directory(STORE, None), state_directory(STORE / "other", None)
    assert one != other
    assert {one.parent, other.parent} == {tmp_path / "streams-groups"}
    assert state_directory(STORE, tmp_path) == tmp_path


def test_a_state_dir_that_cannot_be_created_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(JobError, match="Cannot write state_dir: Not a directory"),
        hold_job_lock(tmp_path / "file" / "x", "default", "state_dir"),
    ):
        pass


@pytest.fixture
def write_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., HeartbeatRecord]:
    """Writes the heartbeat of a job, by default of one on another machine."""
    monkeypatch.setattr(lock, "_POLL_SECONDS", 0.01)
    heartbeat_path(tmp_path, "default").path.parent.mkdir()

    def write(at: datetime, host: str = "other", **settings: Any) -> HeartbeatRecord:
        facts = JobStatus(started_at=at)
        record = HeartbeatRecord(
            at=at, every_seconds=0, facts=facts, records_seen=0, last_batch_seconds=0, host=host, **settings
        )
        heartbeat_path(tmp_path, "default").path.write_text(record.model_dump_json(), "utf-8")
        return record

    return write


def test_a_job_elsewhere_whose_heartbeats_continue_is_an_error(
    tmp_path: Path, write_heartbeat: Callable[..., HeartbeatRecord]
) -> None:
    write_heartbeat(datetime.now(timezone.utc))
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        write_heartbeat(datetime.now(timezone.utc))

    with pytest.raises(JobError, match=f"Another job already writes .* process {os.getpid()} on other"):
        ensure_no_other_job(Location.of(tmp_path), "default", on_line, Event())
    assert len(lines) == 1


def test_a_job_elsewhere_whose_heartbeats_stopped_is_waited_for(
    tmp_path: Path, write_heartbeat: Callable[..., HeartbeatRecord]
) -> None:
    lines: list[str] = []
    write_heartbeat(datetime.now(timezone.utc) - timedelta(seconds=4.5))  # it counts as alive for 5 s
    ensure_no_other_job(Location.of(tmp_path), "default", lines.append, Event())
    assert "on other" in lines[0]


def test_heartbeats_of_stopped_jobs_and_of_this_machine_are_not_waited_for(
    tmp_path: Path, write_heartbeat: Callable[..., HeartbeatRecord]
) -> None:
    lines: list[str] = []
    now = datetime.now(timezone.utc)
    for settings in ({}, {"at": LATE}, {"at": now, "stopped": True}, {"at": now, "host": socket.gethostname()}):
        if settings:
            write_heartbeat(**settings)
        ensure_no_other_job(Location.of(tmp_path), "default", lines.append, Event())
    heartbeat_path(tmp_path, "default").path.write_text('{"of": "another release"}', "utf-8")
    ensure_no_other_job(Location.of(tmp_path), "default", lines.append, Event())
    assert lines == []

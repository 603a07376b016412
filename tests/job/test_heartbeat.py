from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from streaming_app.alerts.engine_facts import DescriptionSupport
from streaming_app.errors import JobError
from streaming_app.job.stopping import StopRequestedError
from streaming_app.job.watchdog import Heartbeat
from streaming_app.job_status import JobStatus
from streaming_app.tables.heartbeat_file import HeartbeatRecord, read_heartbeat
from tests.support.a_job import a_job
from tests.support.heartbeats import write_heartbeat

AT = datetime(2026, 11, 21, 3, 12, tzinfo=timezone.utc)


def heartbeat(warehouse: Path, **known: datetime) -> Heartbeat:
    return Heartbeat(a_job(warehouse, pytest.fail), DescriptionSupport("auto", **known))


def last_heartbeat(warehouse: Path) -> HeartbeatRecord:
    record = read_heartbeat(warehouse, "default")
    assert record is not None
    return record


def test_a_job_is_alive_from_its_first_heartbeat_until_it_stops_and_tells_the_next_run_what_it_knows(
    tmp_path: Path,
) -> None:
    one = heartbeat(tmp_path, known_since=AT, removed_at=AT)
    one.tick()
    assert last_heartbeat(tmp_path).is_alive(datetime.now(timezone.utc))
    one.ended([], StopRequestedError())
    assert not last_heartbeat(tmp_path).is_alive(datetime.now(timezone.utc))
    assert last_heartbeat(tmp_path).ended_by is None
    assert last_heartbeat(tmp_path).descriptions_since == last_heartbeat(tmp_path).descriptions_removed_at == AT


def test_when_nothing_was_known_is_kept_over_restarts_and_a_reader_adds_what_lasts(tmp_path: Path) -> None:
    facts = JobStatus(AT, caught_up=True, caught_up_at=AT)
    record = write_heartbeat(tmp_path, at=AT, facts=facts)
    for minutes, known in ((0.5, []), (30, [(0.5, 30)]), (31, [(0.5, 30)]), (50, [(0.5, 30), (31, 50)])):
        at = AT + timedelta(minutes=minutes)
        gaps = record.gaps_until(at)
        assert [tuple((one - AT).total_seconds() / 60 for one in gap) for gap in gaps] == known
        record = write_heartbeat(tmp_path, at=at, facts=replace(facts, caught_up_at=at), gaps=gaps)
    assert record.gaps_until(None) == record.gaps  # still reading, for the first time
    one = Heartbeat(a_job(tmp_path, pytest.fail), DescriptionSupport("auto"), record)
    one.tick()
    assert last_heartbeat(tmp_path).gaps == record.gaps
    assert record.gaps_until(AT + timedelta(days=40)) == ((record.facts.caught_up_at, AT + timedelta(days=40)),)


def test_a_file_that_cannot_be_written_is_an_error_while_the_job_runs_and_not_when_it_ends(tmp_path: Path) -> None:
    (tmp_path / "_jobs").write_text("a file in the place of the directory", "utf-8")
    one = heartbeat(tmp_path)
    with pytest.raises(OSError, match="_jobs"):
        one.tick()
    one.ended([])


def test_the_error_that_ended_the_job_is_kept_until_it_starts_again(tmp_path: Path) -> None:
    one = heartbeat(tmp_path)
    one.ended([], JobError("The stream failed:\n no space left"))
    assert (last_heartbeat(tmp_path).stopped, last_heartbeat(tmp_path).ended_by) == (
        True,
        "The stream failed: no space left",
    )
    one.tick()
    assert last_heartbeat(tmp_path).ended_by is None


def test_a_job_whose_alerts_are_not_evaluated_is_alive_and_says_so(tmp_path: Path) -> None:
    one = heartbeat(tmp_path)
    one.tick()
    assert last_heartbeat(tmp_path).evaluates  # it has just started
    one.evaluated([])
    one.tick()
    written = last_heartbeat(tmp_path)
    assert written.facts.evaluated_at is not None
    assert written.evaluates
    late = written.model_copy(update={"at": written.at + written.alive_for + timedelta(seconds=1)})
    assert not late.evaluates
    assert late.is_alive(late.at)

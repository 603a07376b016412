from dataclasses import replace
from datetime import timedelta

from pydantic import RootModel

from streaming_app.job_status import JobStatus
from streaming_app.stream.job_state import CommittedBatch, JobState
from streaming_app.stream.log_positions import Cut

CALM = CommittedBatch(seen=5, seconds=0.5, by_type={17: 2}, quarantined=0, drifted=0, behind={0: 0, 1: 0})


def batch(**other: object) -> CommittedBatch:
    return CommittedBatch(**{**CALM.__dict__, **other})


def test_a_job_is_behind_from_its_beginning_to_the_end_of_the_topic_and_has_caught_up_then_for_good() -> None:
    health = JobState()
    health.batch_done(batch(behind={0: 3}))
    since = health.status.behind_since
    health.batch_done(batch(behind={0: 2}))
    assert (health.status.behind_since, health.status.caught_up) == (since, False)
    health.nothing_new()
    assert (health.status.behind_since, health.status.caught_up) == (None, True)
    health = JobState()
    health.batch_done(CALM)
    health.batch_done(batch(behind={0: 3}))
    assert (health.status.caught_up, health.status.behind) == (True, 3)


def test_a_batch_of_minutes_is_being_behind_since_it_began() -> None:
    health = JobState()
    health.batch_done(batch(seconds=90))
    since, ended = health.status.behind_since, health.status.last_success_at
    assert since is not None
    assert ended is not None
    assert ended - since == timedelta(seconds=90)
    health.batch_done(CALM)
    assert health.status.behind_since is None


def test_a_failure_lasts_until_a_batch_ends_well() -> None:
    health = JobState()
    health.failed("Full disk")
    since = health.status.failing_since
    health.failed("Full disk")
    assert (health.status.failing_since, health.status.failure) == (since, "Full disk")
    health.batch_done(CALM)
    assert (health.status.failing_since, health.status.failure) == (None, None)


def test_records_of_unknown_types_are_counted_by_type_over_restarts_until_a_release_knows_the_type() -> None:
    earlier, health = JobState(), JobState()
    earlier.batch_done(batch(unknown={24: 1_000}))
    earlier.batch_done(batch(unknown={24: 2, 25: 1}))
    known = earlier.status.unknown_types
    assert {kind: one.records for kind, one in known.items()} == {24: 1_002, 25: 1}
    assert (known[24].since < known[24].newest, earlier.status.quarantined) == (True, 0)
    stored = RootModel[JobStatus](replace(earlier.status, unknown_types={**known, 17: known[24]})).model_dump_json()
    health.restore(RootModel[JobStatus].model_validate_json(stored).root)
    health.batch_done(batch(unknown={24: 1}))
    assert {kind: one.records for kind, one in health.status.unknown_types.items()} == {24: 1_003, 25: 1}
    assert health.status.unknown_types[24].since == known[24].since


def test_cuts_of_an_earlier_run_are_told_with_those_of_this_one() -> None:
    earlier, health = JobState(), JobState()
    earlier.log_cut(Cut("offsets", 0, 15, 30, 7, 9, "2026-11-01T00:00:00+00:00"))
    health.restore(earlier.status)
    assert health.status.truncated == earlier.status.truncated
    health.log_cut(Cut("offsets", 1, 3, 4, 7, 9, "2026-11-01T01:00:00+00:00"))
    assert health.status.truncated == "partition 1 of offsets, offset 3; partition 0 of offsets, offsets 15 to 29"

"""What it takes to end a bad verdict, and how long one stands of which nothing is known any more."""

from dataclasses import replace

import pytest

from streaming_app.health.verdict import BAD, DOWN, IDLE, LOSING, OK, STALLED, UNKNOWN, UNSTABLE, Verdict, is_over
from streaming_app.lag.partition_progress import Standing
from streaming_app.lag.work import GroupWork
from tests.support.health_harness import NOW, ago, bad, facts, group, unmoved, verdict, waiting, work
from tests.support.lag_harness import row


@pytest.mark.parametrize(
    ("of_work", "ends"),
    [
        (waiting(ago(hours=1), progressed_at=ago(minutes=30)), False),
        (waiting(ago(hours=1), progressed_at=NOW), True),
        (work(), True),
        (work(unknown=12), False),
        (None, False),
    ],
    ids=["no offset has advanced", "offsets advance", "nothing is left", "nothing is known", "there is no lag"],
)
def test_members_that_are_back_end_nothing_until_offsets_advance(of_work: GroupWork | None, ends: bool) -> None:
    found = verdict(facts(group("Stable", ago(minutes=3)), of_work), bad(DOWN, ago(hours=1)))
    assert (found.verdict in {OK, IDLE}) is ends
    if not ends:
        assert (found.verdict, found.since, "not_over" in found.evidence) == (DOWN, ago(hours=1), True)


def test_where_the_lag_cannot_be_known_ten_minutes_of_processing_end_it() -> None:
    before = bad(DOWN, ago(hours=1))
    back = facts(group("Stable", ago(minutes=9)))
    assert verdict(back, before).recheck_at == ago(minutes=-1)
    found = verdict(back, verdict(back, before), at=ago(minutes=-1))
    assert (found.verdict, is_over(found), found.why) == (UNKNOWN, True, "It has members again; its lag is not known.")


def test_records_lost_in_more_partitions_than_are_named_are_not_over_while_one_is_hidden() -> None:
    lost = [row(partition=n, offset_status="LOST", committed_offset=90, log_start_offset=790) for n in range(21)]
    at_first = waiting(ago(hours=1), lost=unmoved(ago(minutes=2), offsets=700, named=lost[:20], count=21))
    losing = verdict(facts(group(), at_first))
    assert (losing.verdict, losing.evidence["partition_count"]) == (LOSING, 21)
    progress = {("orders", n): Standing(row(partition=n), None if n == 20 else False) for n in range(21)}
    known = work(partitions=21, unknown=1, progressed_at=NOW, arrived_at=NOW, progress=progress)
    assert not is_over(verdict(facts(group(), known), losing))


@pytest.mark.parametrize("name", [OK, STALLED, LOSING])
def test_lag_that_is_too_old_makes_nothing_better_or_worse_and_what_is_not_known_for_long_is_not_well(
    name: str,
) -> None:
    old = work(ago(minutes=14))
    before = replace(bad(name, ago(minutes=40)), severity="critical" if name in BAD else None)
    found = verdict(facts(group(), old), before)
    assert (found.verdict, found.recheck_at) == (name, ago(minutes=-1, microseconds=-1))
    later = verdict(facts(group(), old), before, at=ago(minutes=-2)).verdict
    assert later == (UNKNOWN if name == OK else name)


def test_quiet_alone_ends_no_alert_while_the_lag_is_not_known() -> None:
    before = replace(bad(UNSTABLE, ago(hours=1)), facts_at=ago(minutes=40))
    found = verdict(facts(group(), None), before)
    assert (found.verdict, found.evidence["not_over"]) == (UNSTABLE, "its lag is not known now")
    assert verdict(facts(group(), work(arrived_at=NOW)), found).verdict == OK
    never_known = facts(group(), work(has_commits=False, uncertain=3))
    calm = verdict(never_known, replace(before, facts_at=None))
    assert (calm.verdict, is_over(calm)) == (UNKNOWN, True)


@pytest.mark.parametrize("name", [OK, IDLE])
def test_a_group_is_not_well_for_longer_because_the_job_was_restarted_and_knows_nothing(name: str) -> None:
    known = Verdict(name, ago(hours=5), ago(hours=5), "Offsets advance.", facts_at=ago(minutes=14))
    for of_work in (None, replace(work(unknown=12), known_at=0.0)):
        found = verdict(facts(group(), of_work), known)
        assert (found.verdict, found.recheck_at) == (name, ago(minutes=-1, microseconds=-1))
        assert verdict(facts(group(), of_work), found, at=ago(minutes=-2)).verdict == UNKNOWN
        assert verdict(facts(group(), of_work), replace(known, facts_at=None)).verdict == UNKNOWN
    long_away = replace(known, facts_at=ago(hours=1))
    found = verdict(facts(group(), None, watched_since=NOW), long_away)
    assert (found.verdict, found.recheck_at) == (name, ago(minutes=-3, microseconds=-1))
    assert verdict(facts(group(), None, watched_since=NOW), found, at=ago(minutes=-4)).verdict == UNKNOWN


def test_what_was_stalled_without_any_commit_is_not_over_before_it_has_one() -> None:
    """After a restart of the job nothing says where such a partition began to wait."""
    never = {"topic": "orders", "partition": 0}
    before = bad(STALLED, ago(hours=1), evidence={"partitions": [never]})
    for committed, ends in ((None, False), (90, True)):
        standing = Standing(row(committed_offset=committed), offset=committed)
        known = work(progress={("orders", 0): standing}, progressed_at=NOW)
        found = verdict(facts(group(), known), before)
        assert (found.verdict == OK) is ends
        assert ("not_over" in found.evidence) is not ends
    assert verdict(facts(group(), work()), before).verdict == IDLE  # it does not read the topic any more


@pytest.mark.parametrize("at", [-1, -5, -14])
def test_a_group_without_members_is_not_down_at_the_first_start_before_its_work_is_read(at: int) -> None:
    """All verdicts are of this run: no earlier run knew whether work waits, so patience counts from the start."""
    first = verdict(facts(group("Empty"), watched_since=NOW))
    assert first.verdict != DOWN
    later = verdict(facts(group("Empty"), watched_since=NOW), first, at=ago(minutes=at))
    assert later.verdict != DOWN
    assert verdict(facts(group("Empty"), watched_since=NOW), later, at=ago(minutes=-16)).verdict == DOWN

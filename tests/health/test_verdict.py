"""Each verdict by its facts, and what was judged wrongly before there were verdicts."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from streaming_app.alerts.catalog import RULE_OF_VERDICT, rules
from streaming_app.alerts.engine import truth_of
from streaming_app.groups.snapshot import NOT_REVOKING, GroupSnapshot, UnsettledMember
from streaming_app.groups.task_copies import CopyProgress, LagReport, TaskCopy
from streaming_app.health.facts import Facts, to_time
from streaming_app.health.group_history import ASSIGNED, Event, GroupHistory
from streaming_app.health.verdict import BEHIND, DOWN, IDLE, LOSING, OFF, OK, RESTORING, STALLED, UNKNOWN, Verdict
from streaming_app.lag.model import GroupTasks
from streaming_app.lag.open_transactions import FirstProducer, OpenTransaction, Transactions
from streaming_app.lag.partition_progress import Standing
from streaming_app.lag.work import GroupWork
from tests.support import lag_harness
from tests.support.health_harness import (
    LONG_AGO,
    NOW,
    ago,
    bad,
    facts,
    group,
    late,
    members,
    states,
    unmoved,
    verdict,
    waiting,
    work,
)
from tests.support.lag_harness import MiniCluster, row

MISSING = "MISSING_SOURCE_TOPICS: Source topics orders are missing."


@pytest.mark.parametrize(
    ("of_work", "expected"),
    [
        (work(), IDLE),
        (work(arrived_at=NOW), OK),
        (waiting(ago(seconds=20), progressed_at=ago(seconds=10)), OK),
        (waiting(ago(seconds=20), progressed_at=LONG_AGO - timedelta(days=1)), UNKNOWN),
        (None, UNKNOWN),
        (work(unknown=12), UNKNOWN),
        (work(has_commits=False, uncertain=3), UNKNOWN),
        (work(has_commits=False), IDLE),
    ],
)
def test_a_stable_group_is_judged_by_its_work(of_work: GroupWork | None, expected: str) -> None:
    assert verdict(facts(group(), of_work)).verdict == expected


def test_lost_records_are_losing_with_how_many() -> None:
    lost = row(offset_status="LOST", committed_offset=90, log_start_offset=790)
    found = verdict(facts(group(), waiting(ago(hours=1), lost=unmoved(ago(minutes=2), offsets=700, named=(lost,)))))
    assert (found.verdict, found.severity, found.since) == (LOSING, "critical", ago(minutes=2))
    assert "at least 700 offsets of 1 partition were deleted before the group read them" in found.why
    assert found.evidence["lost_offsets_at_least"] == 700
    assert found.evidence["partitions"][0]["log_start_offset"] == 790


@pytest.mark.parametrize(
    ("of_work", "severity"),
    [
        (work(), "warning"),
        (work(arrived_at=ago(minutes=11), arrival_gap=7_200.0), "warning"),
        (waiting(ago(minutes=6)), "critical"),
        (work(arrived_at=NOW), "critical"),
        (None, "critical"),
    ],
    ids=["nothing to do", "records are rare", "work waits", "records come", "not known"],
)
def test_not_ready_beyond_its_time_is_down_whatever_waits(of_work: GroupWork | None, severity: str) -> None:
    one = group("NotReady", ago(minutes=5), not_ready_reason=MISSING)
    found = verdict(facts(one, of_work))
    assert (found.verdict, found.severity, found.since, found.at) == (DOWN, severity, ago(minutes=5), NOW)
    assert "Source topics orders are missing" in found.why
    before = verdict(facts(one, of_work, at=ago(seconds=1)), at=ago(seconds=1))
    assert before.verdict != DOWN
    assert before.recheck_at == NOW


@pytest.mark.parametrize("of_work", [work(arrived_at=NOW), work(), waiting(ago(minutes=1), progressed_at=NOW)])
def test_a_group_that_is_not_ready_is_not_well_before_it_is_down(of_work: GroupWork) -> None:
    one = group("NotReady", ago(minutes=3), not_ready_reason=MISSING)
    for before in (None, Verdict(OK, LONG_AGO, LONG_AGO, "Offsets advance.")):
        found = verdict(facts(one, of_work), before)
        assert (found.verdict, found.why) == (
            UNKNOWN,
            f"NotReady since 2026-11-21 03:09:00Z, Down at 2026-11-21 03:14:00Z unless it gets ready: {MISSING}",
        )


@pytest.mark.parametrize(
    ("known", "name", "says"),
    [
        (work(unknown=3), IDLE, "nothing waits in them"),
        (work(unknown=3, arrived_at=NOW), OK, "offsets advance in them"),
        (waiting(ago(seconds=20), progressed_at=NOW, unknown=3), OK, "offsets advance in them"),
    ],
)
def test_a_group_is_not_well_when_it_is_not_known_of_some_partitions_whether_work_waits(
    known: GroupWork, name: str, says: str
) -> None:
    found = verdict(facts(group(), known))
    text = f"9 of 12 partitions known: {says}. Of the others it is not known whether work waits."
    assert (found.verdict, found.why, found.evidence["unknown_partitions"]) == (UNKNOWN, text, 3)
    well = Verdict(name, LONG_AGO, LONG_AGO, "why", facts_at=ago(minutes=14))
    for each in (known, replace(known, complete_at=ago(minutes=14).timestamp())):
        stays = verdict(facts(group(), each), well)
        assert (stays.verdict, stays.facts_at, stays.recheck_at) == (
            name,
            ago(minutes=14),
            ago(minutes=-1, microseconds=-1),
        )
        later = facts(group(), replace(each, known_at=ago(minutes=-2).timestamp()))
        assert verdict(later, stays, at=ago(minutes=-2)).verdict == UNKNOWN


def test_a_group_that_is_not_ready_stays_a_warning_while_it_is_not_known_whether_work_waits() -> None:
    one = group("NotReady", ago(minutes=50), not_ready_reason=MISSING)
    before = verdict(facts(one, work()))
    for known in (work(unknown=1), work(unknown=12), None):
        assert [verdict(facts(one, known), each).severity for each in (before, None)] == ["warning", "critical"]
    assert verdict(facts(one, waiting(ago(minutes=1), unknown=1)), before).severity == "critical"


def ended(minutes: float) -> GroupSnapshot:
    """Return a group that has been Empty for so many minutes, after it ran for a week."""
    at = ago(minutes=minutes)
    return group("Empty", at, first_seen_at=at - timedelta(days=7))


@pytest.mark.parametrize(
    ("minutes", "of_work", "expected"),
    [
        (5, waiting(ago(minutes=5)), DOWN),
        (4.9, waiting(ago(minutes=4.9)), UNKNOWN),
        (5, work(), OFF),
        (600, work(), OFF),
        (14, None, UNKNOWN),
        (15, None, DOWN),
        (600, waiting(ago(minutes=5)), DOWN),
        (600, waiting(ago(minutes=4)), UNKNOWN),
    ],
    ids=[
        "work waits",
        "an autoscaler has five minutes",
        "nothing waits",
        "scaled to zero since long",
        "not known, a deployment",
        "not known",
        "records came after it was scaled to zero",
        "records have just come",
    ],
)
def test_a_group_without_members_is_judged_by_what_waits(minutes: float, of_work: Any, expected: str) -> None:
    assert verdict(facts(ended(minutes), of_work)).verdict == expected


@pytest.mark.parametrize(
    ("before", "expected"), [(OK, OK), (IDLE, IDLE), (UNKNOWN, UNKNOWN), (OFF, UNKNOWN), (None, UNKNOWN)]
)
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_group_that_will_be_down_keeps_its_verdict_until_then_and_says_when_and_is_never_off(
    before: str | None, expected: str, *, is_deleted: bool
) -> None:
    """Off says that nothing is needed. Seen after a `kill -9`: "Off" for five minutes, while records waited."""
    earlier = Verdict(before, LONG_AGO, LONG_AGO, "Offsets advance.") if before else None
    found = verdict(facts(ended(1), waiting(ago(minutes=1)), is_deleted=is_deleted), earlier)
    assert (found.verdict, found.severity) == (expected, None)
    assert found.since == (LONG_AGO if before == expected else NOW)
    assert (found.evidence["pending_verdict"], found.evidence["pending_at"]) == (DOWN, ago(minutes=-4).isoformat())
    for back in (facts(group(), waiting(ago(seconds=20))), facts(group(), None)):
        assert "No members" not in verdict(back, replace(found, facts_at=NOW)).why
    assert "No members since 2026-11-21 03:11:00Z, and work waits: Down at 2026-11-21 03:16:00Z unless" in found.why
    assert verdict(facts(ended(5), waiting(ago(minutes=5)), is_deleted=is_deleted), found).verdict == DOWN


def test_a_deleted_group_of_which_no_pass_saw_the_work_is_not_off() -> None:
    found = verdict(facts(group("Empty", LONG_AGO), is_deleted=True))
    assert (found.verdict, "not known whether work waited" in found.why) == (UNKNOWN, True)


@pytest.mark.parametrize(("minutes", "expected"), [(14, UNKNOWN), (15, DOWN)])
def test_a_group_without_a_commit_that_the_broker_deletes_before_it_is_down_becomes_down(
    minutes: float, expected: str
) -> None:
    """The first deployment that fails: brokers delete a group without members and commits within ten minutes."""
    never = work(waiting=0, has_commits=False, uncertain=12)
    assert verdict(facts(ended(minutes), never, is_deleted=True)).verdict == expected


@pytest.mark.parametrize(("minutes", "expected"), [(4, UNKNOWN), (6, DOWN)])
def test_a_group_that_ended_while_the_brokers_were_away_has_five_minutes_from_their_return_on(
    minutes: float, expected: str
) -> None:
    """Twelve minutes are more than work may wait."""
    known = facts(ended(12), waiting(ago(minutes=13), seen_again_at=ago(minutes=minutes)))
    assert verdict(known).verdict == expected
    for_long = facts(ended(21), waiting(ago(minutes=22), seen_again_at=ago(minutes=minutes)))
    assert verdict(for_long).verdict == DOWN


def loop() -> GroupHistory:
    """Return the history of a group that was up for 20 s and Empty for 300 s, again and again, until now."""
    begins = [ago(seconds=320 * n) for n in range(8, 0, -1)]
    down = timedelta(seconds=300)
    return states(*(one for at in begins for one in ((at, "Stable", "Empty"), (at + down, "Empty", "Stable"))))


def out_of_memory() -> GroupHistory:
    """Return the history of members that stay for 90 s each."""
    begins = [(f"m{n}", ago(minutes=2 * n)) for n in range(5, 0, -1)]
    stays = timedelta(seconds=90)
    return members(*(one for m, at in begins for one in ((at, m, True, "h"), (at + stays, m, False, "h"))))


@pytest.mark.parametrize(
    ("partitions", "since"),
    [
        ([(50, 20)], 50),
        ([(50, 14)], None),
        ([(14, 20)], None),
        ([(50, 20), (90, 1)], 50),
        ([(50, 20), (90, 16)], 90),
        ([], None),
    ],
    ids=["for 15 minutes", "not yet", "not late yet", "another one catches up", "the oldest", "none is late"],
)
def test_a_group_is_behind_since_its_oldest_record_became_ten_minutes_old(
    partitions: list[tuple[float, float]], since: float | None
) -> None:
    progress = late(*((ago(minutes=one), ago(minutes=other)) for one, other in partitions))
    known = waiting(ago(hours=3), progress=progress, progressed_at=NOW)
    found = verdict(facts(group(), known))
    assert (found.verdict, found.since) == ((BEHIND, ago(minutes=since)) if since else (OK, NOW))
    assert verdict(facts(group("Empty", ago(minutes=1)), known)).verdict != BEHIND
    if since:
        more = {key: replace(one, row=one.row._replace(lag_seconds=9_999.0, lag=77)) for key, one in progress.items()}
        later = verdict(facts(group(), replace(known, progress=more)), at=NOW + timedelta(seconds=30))
        assert (found.why, found.evidence == later.evidence) == (later.why, False), "numbers are evidence"


def test_who_commits_less_often_than_its_patience_is_told_how_to_say_so() -> None:
    for rested, is_told in ((299.0, False), (300.0, True)):
        progress = {("orders", 0): Standing(row(), rested=rested)}
        found = verdict(facts(group(), waiting(ago(minutes=7), stalled=unmoved(ago(minutes=7)), progress=progress)))
        assert (found.verdict, "raise `for` of StreamsGroupStalled" in found.why) == (STALLED, is_told)


def test_a_broker_that_is_away_is_evidence() -> None:
    progress = {("orders", n): Standing(row()) for n in range(3)}
    known = waiting(ago(minutes=6), progress=progress)
    one = group("Empty", ago(minutes=6), first_seen_at=ago(days=9))
    away = {"b1": ["orders-0"], "b2": ["orders-1", "orders-2"], "b3": ["other-0"]}
    found = verdict(facts(one, known, away=away)).evidence
    assert found["broker_away"] == "b2"
    assert "broker_away" not in verdict(facts(one, known, away={"b3": ["other-0"]})).evidence
    kept_there = replace(known, tasks=GroupTasks(source_partition=17))
    for partition, expected in ((17, "b3"), (18, None)):
        away = {"b3": [f"__consumer_offsets-{partition}"]}
        assert verdict(facts(one, kept_there, away=away)).evidence.get("broker_away") == expected


@pytest.mark.parametrize(("minutes", "severity"), [(4.9, None), (5, "warning")])
def test_a_restore_that_nothing_reports_has_five_minutes_before_short_retention_is_a_warning(
    minutes: float, severity: str | None
) -> None:
    since = ago(minutes=minutes)
    known = waiting(since, restoring=unmoved(since), oldest={"orders": since.timestamp()})
    for retention, expected in ((1_200.0, severity), (3_600.0, None)):
        found = verdict(facts(group(), known, retention={"orders": retention}))
        assert (found.verdict, found.severity) == (RESTORING, expected)


def reported(fell: float) -> dict[str, CopyProgress]:
    """Return the report of a task that restored 600 of 1,000 offsets in the hour that ended so many minutes ago."""
    copy = TaskCopy("g", "m", None, None, "restoring", "0", 0)
    reports = LagReport(ago(minutes=fell + 60), 1_000), LagReport(ago(minutes=fell), 400)
    return {"0_0": CopyProgress(copy, reports, ends_at=ago(minutes=fell - 40))}


def test_a_restore_that_advances_by_its_reports_may_take_longer_and_says_until_when() -> None:
    known = waiting(ago(hours=1), stalled=unmoved(ago(hours=1), tasks=frozenset({"0_0"})))
    found = verdict(facts(group(), known, restores=reported(1)))
    assert (found.verdict, found.severity, found.recheck_at) == (RESTORING, None, ago(minutes=-4))
    assert "; restored in less than 1h" in found.why
    assert found.evidence["restored_at"] == ago(minutes=1 - 40).isoformat()
    for restores in (reported(5), {"0_1": reported(1)["0_0"]}, {}):
        assert verdict(facts(group(), known, restores=restores)).verdict == STALLED


def test_a_group_whose_offsets_are_set_back_after_it_stopped_is_down_since_then() -> None:
    """Seen: reset at 15:49, "Down since 15:35:45"."""
    of_topic = {"orders": "0"}
    cluster = MiniCluster(tasks=GroupTasks(subtopology_of=of_topic, has_members=True))
    cluster.produce(7)
    cluster.commit_offset(7)
    cluster.step()
    stopped, cluster.tasks = cluster.now, GroupTasks(subtopology_of=of_topic, has_members=False)
    found: Verdict | None = None

    def judged() -> Verdict:
        cluster.step()
        empty = group(state="Empty", state_since=to_time(stopped), member_count=0, members_since=None)
        known = cluster.tracker.work[lag_harness.GROUP]
        return verdict(facts(empty, known), found, to_time(cluster.now))

    for _ in range(20):
        found = judged()
    assert found
    assert found.verdict == OFF
    cluster.commit_offset(0)
    reset = to_time(cluster.now)
    for _ in range(12):
        found = judged()
    assert (found.verdict, found.since) == (DOWN, reset)


MISSING_SINK = (("results", "does not exist"),)


def test_while_offsets_advance_a_sink_topic_that_does_not_exist_is_said() -> None:
    known = waiting(ago(seconds=20), progressed_at=ago(seconds=10))
    found = verdict(facts(group(), known, sinks=MISSING_SINK))
    assert (found.verdict, found.why) == (OK, "Offsets advance. A topic to which it writes does not exist: results.")


@pytest.mark.parametrize(("minutes", "expected"), [(4.9, None), (5.1, STALLED)])
def test_a_task_whose_sink_topic_does_not_exist_does_not_restore_but_is_stalled_with_the_command_that_creates_it(
    minutes: float, expected: str | None
) -> None:
    """Seen: Ok, and then Restoring although nobody moved."""
    since = ago(minutes=minutes)
    known = waiting(since, restoring=unmoved(since, tasks=frozenset({"0_0"})), progressed_at=since)
    found = verdict(facts(group(), known, sinks=MISSING_SINK))
    if expected is None:
        assert found.verdict not in {STALLED, RESTORING}
        return
    assert (found.verdict, found.since) == (STALLED, since)
    assert found.why.endswith("; a topic to which it writes does not exist: results")
    step = rules()[RULE_OF_VERDICT[STALLED]].step_for(found.why).text
    assert "kafka-topics.sh --create --topic MISSING_TOPIC" in step
    assert truth_of("g", found, None).causes == ["missing_topic:results"]  # type: ignore[union-attr]
    assert verdict(facts(group(), known, sinks=MISSING_SINK, restores=reported(1))).verdict == RESTORING


def test_that_nothing_waits_is_not_known_of_a_group_without_members_while_some_partitions_are_not() -> None:
    known = work(unknown=11)
    found = verdict(facts(ended(600), known))
    assert (found.verdict, found.evidence["unknown_partitions"]) == (UNKNOWN, 11)
    assert "1 of 12 partitions known: nothing waits in them; it has no members." in found.why
    assert verdict(facts(ended(60), known), bad(DOWN, ago(hours=1))).verdict == DOWN
    off = Verdict(OFF, LONG_AGO, LONG_AGO, "why", facts_at=ago(minutes=1))
    assert verdict(facts(ended(600), known), off).verdict == OFF


def assigned_for_nothing() -> GroupHistory:
    return GroupHistory(
        assignments=[Event(ago(minutes=9) + timedelta(seconds=n), n, ASSIGNED, cause="unknown") for n in range(10)]
    )


def not_revoking() -> GroupSnapshot:
    asked_at = ago(minutes=30)
    member = UnsettledMember("m", NOT_REVOKING, "c", "10.0.0.1", "p", None, asked_at, 300_000, ("0_0",), 1)
    return group("Reconciling", asked_at, unsettled=(member,), unsettled_count=1, assigned_at=asked_at)


@pytest.mark.parametrize(
    ("known", "step"),
    [
        (facts(ended(60)), "No members: read the end of the application's log"),
        (facts(group("NotReady", ago(minutes=5), not_ready_reason=MISSING)), "`MISSING_SOURCE_TOPICS`: create"),
        (facts(group("Stable", ago(seconds=20)), waiting(ago(hours=1)), loop()), "It restarts again"),
        (facts(group(), waiting(ago(minutes=7), stalled=unmoved(ago(minutes=7)))), "One partition: often one record"),
        (facts(group(), waiting(ago(minutes=7), stalled=unmoved(ago(minutes=7), 12))), "All partitions of one process"),
        (
            facts(group(), waiting(ago(minutes=7), stalled=unmoved(ago(minutes=7), 12, unowned=12))),
            "No member has the tasks",
        ),
        (
            facts(group(), waiting(ago(minutes=7), stalled=unmoved(ago(minutes=7), 12)), out_of_memory()),
            "Members join and leave again and again",
        ),
        (facts(group("Assigning", ago(minutes=30))), "`Assigning` for minutes"),
        (facts(not_revoking()), "A member has not revoked"),
        (
            facts(group(), waiting(ago(hours=1), progress=late((ago(minutes=50), ago(minutes=20))))),
            "One partition is behind",
        ),
        (facts(group(), waiting(ago(seconds=9), progressed_at=NOW), assigned_for_nothing()), "No member caused it"),
    ],
)
def test_the_runbook_has_a_step_for_what_a_verdict_says(known: Facts, step: str) -> None:
    found = verdict(known)
    assert rules()[RULE_OF_VERDICT[found.verdict]].step_for(found.why).text.startswith(step), found.why


@pytest.mark.parametrize(
    ("open_since", "timeout", "longest", "minutes", "severity"),
    [
        (ago(minutes=21), 900.0, None, 21, "critical"),
        (ago(minutes=19), 900.0, None, 19, None),
        (ago(minutes=7), 60.0, 900.0, 7, "critical"),
        (None, None, 900.0, 21, "critical"),
        (None, None, 3_600.0, 21, None),
        (None, None, None, 21, "warning"),
        (None, None, None, 19, None),
        (ago(minutes=-60), 60.0, 900.0, 19, None),
        (ago(minutes=2), 60.0, 900.0, 19, None),
        (ago(minutes=79), 900.0, 900.0, 19, None),
    ],
    ids=[
        "beyond its own time-out",
        "not yet",
        "its own is shorter than the longest",
        "beyond the longest",
        "not beyond the longest",
        "no limit is known",
        "not beyond the default",
        "it starts in the future",
        "a later one",
        "the clock of its coordinator is an hour behind",
    ],
)
def test_who_is_held_by_an_open_transaction_is_stalled_after_its_limit_and_patience(
    open_since: datetime | None, timeout: float | None, longest: float | None, minutes: float, severity: str | None
) -> None:
    since, key = ago(minutes=minutes), ("orders", 0)
    standing = Standing(row(last_stable_offset=90), offset=90)
    of_work = work(held={key: since.timestamp()}, progress={key: standing}, progressed_at=since, arrived_at=NOW)
    found = {key: OpenTransaction("tx", open_since.timestamp(), timeout or 0.0, 5)} if open_since else {}
    judged = verdict(facts(group(), of_work, transactions=Transactions(found, longest)))
    assert (judged.verdict, judged.severity) == (STALLED if severity else OK, severity)
    if severity:
        assert (judged.since, judged.evidence["open_transaction"]) == (since, ["tx"] if open_since else [])
        step = rules()[RULE_OF_VERDICT[STALLED]].step_for(judged.why).text
        assert all(one in step for one in ("describe-producers", "find-hanging", "abort"))
    assert verdict(facts(group(), of_work, transactions=None), judged).verdict == judged.verdict  # asked for later


@pytest.mark.parametrize(
    ("first", "minutes", "named"),
    [
        (
            FirstProducer(90, 7, OpenTransaction("tx", ago(minutes=-60).timestamp(), 60.0, 7)),
            7,
            "transactional id tx, ",
        ),
        (FirstProducer(90, 7), 21, "producer 7, transactional id not known"),
        (FirstProducer(80, 7), 21, "orders-0 at 90, transactional id another, producer 5"),
        (None, 21, "orders-0 at 90, transactional id another, producer 5"),
    ],
    ids=["the clock of its coordinator is an hour ahead", "an orphan", "it has ended meanwhile", "not asked for"],
)
def test_the_producer_whose_transaction_starts_at_the_last_stable_offset_is_the_one_that_holds_a_group(
    first: FirstProducer | None, minutes: float, named: str
) -> None:
    since, key = ago(minutes=minutes), ("orders", 0)
    standing = Standing(row(last_stable_offset=90), offset=90)
    of_work = work(held={key: since.timestamp()}, progress={key: standing}, progressed_at=since, arrived_at=NOW)
    another = OpenTransaction("another", since.timestamp(), 900.0, 5)
    known = Transactions({key: another}, 900.0, {key: first} if first else {})
    judged = verdict(facts(group(), of_work, transactions=known))
    assert (judged.verdict, judged.severity, named in judged.why) == (STALLED, "critical", True), judged.why
    assert judged.evidence["partitions"][0]["producer_id"] == (7 if first and first.starts_at == 90 else 5)

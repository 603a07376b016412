"""The chosen histories: no ordinary operation raises an alert, and every incident does. `tests/long` plays all."""

from dataclasses import replace

import pytest

from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.health.verdict import IDLE, OK, RESTORING, STALLED, UNKNOWN, UNSTABLE, VERDICTS, Verdict
from tests.alerts.examples import check_text
from tests.histories.bed import run
from tests.histories.clients import START
from tests.histories.history import (
    BEGINS,
    HOUR,
    MINUTE,
    STATE,
    TOPICS,
    TRAFFIC,
    History,
    Operations,
    crash_loop,
    do,
    names,
    ordinary,
    start,
    steady,
    stop,
    working,
)
from tests.histories.judged import (
    CHOSEN,
    HISTORIES,
    OUTCOMES,
    check_incident,
    check_ordinary,
    check_paces,
    name_of,
)
from tests.histories.misjudged import COUNTED_AGAIN_AT, DEATHS, IGNORED_AT, MENDED, ONE_MORE
from tests.histories.outcome import Outcome

pytestmark = pytest.mark.slow
PACED = (
    "Rolling restart of 6 instances that restore state for ten minutes",
    "A source topic is missing: the client gives up, and is started again",
    "The only instance is killed for its memory after a minute each time",
    "Retention of half an hour overtakes an application whose threads hang",
    "More is produced than the application can process",
    "An unclean election cuts the log of one partition to below what the application has committed",
)
"""Those that are also played at every pace."""


def outcome_with(part: str) -> Outcome:
    """Return the outcome of the history that has this in its name."""
    (name,) = (name for name in HISTORIES if part in name)
    return OUTCOMES[name]


@pytest.mark.parametrize("history", [one for one in CHOSEN if not one.rules], ids=name_of)
def test_an_ordinary_operation_raises_no_alert(history: History) -> None:
    check_ordinary(history)


@pytest.mark.parametrize("history", [one for one in CHOSEN if one.rules], ids=name_of)
def test_an_incident_raises_the_expected_alert_after_it_began_and_no_other(history: History) -> None:
    check_incident(history)


def test_each_of_three_applications_on_one_host_has_an_alert_of_its_own_death() -> None:
    fired = {one.group_id: one.opened_at for one in outcome_with("Three applications on one host").fired}
    assert fired.keys() == DEATHS.keys()
    assert all(died < fired[group_id] <= died + 6 * MINUTE for group_id, died in DEATHS.items())


def test_an_ignore_ends_an_alert_and_taking_it_back_opens_only_what_is_not_over() -> None:
    back, gone = (outcome_with(name).fired for name in ("lost is ignored, the", "lost is ignored for a while"))
    assert [(one.ended_at, one.ended_by) for one in back] == [(IGNORED_AT, "ignored")]
    again = [(one.opened_at, one.ended_at) for one in gone[1:]]
    assert ((gone[0].ended_by, gone[0].ended_at), again) == (("ignored", IGNORED_AT), [(COUNTED_AGAIN_AT, None)])


def test_groups_that_lack_a_description_are_not_resolved_because_others_change() -> None:
    fired = outcome_with("Five groups").fired
    assert {one.group_id: one.opened_at > ONE_MORE for one in fired} == {f"app-{n}": n == 5 for n in range(6)}
    ((mended, ended_at),) = [(one.group_id, one.ended_at or 0.0) for one in fired if one.ended_at]
    assert mended == "app-0"
    assert MENDED <= ended_at <= MENDED + 6 * MINUTE


@pytest.mark.parametrize(
    ("name", "severity", "words"),
    [
        ("declares nothing", "critical", ["if this is meant, add running_hours for it"]),
        ("nothing comes", "warning", ["NotReady", "log"]),
        ("later records come", "critical", ["NotReady", "log"]),
        ("An application fails at its first record", "critical", ["no offset of all 12 partitions"]),
        ("An unclean election", "warning", ["beyond the end of the log"]),
        (
            "is stuck in revocation",
            "critical",
            ["i0-thread-0 (10.63.242.189, process i0-1) has not revoked task 0_11 since"],
        ),
        (
            "client gives up, and",
            "critical",
            ["does not stay up", "was started ", "in between it was Empty", "MISSING_"],
        ),
    ],
)
def test_an_alert_is_so_severe_and_says_what_is_wrong(name: str, severity: str, words: list[str]) -> None:
    fired = outcome_with(name).fired
    assert {one.severity for one in fired} == {severity}
    assert [one.why for one in fired if not all(word in one.why for word in words)] == []


def test_a_push_that_nobody_asked_for_and_the_plugin_rejects_is_an_alert() -> None:
    fired = outcome_with("rejects all others").fired
    assert [(one.rule, one.opened_at >= BEGINS) for one in fired] == [
        ("StreamsGroupDescriptionFailed", False),
        ("StreamsGroupUnsolicitedDescription", True),
    ]


@pytest.mark.parametrize("name", PACED)
def test_the_same_facts_open_and_end_the_same_alerts_at_any_pace(name: str) -> None:
    check_paces(HISTORIES[name])


def test_the_chosen_histories_bring_every_verdict_and_every_rule_that_a_history_may_bring() -> None:
    outcomes = [OUTCOMES[one.name] for one in CHOSEN]
    assert {change.verdict.verdict for outcome in outcomes for change in outcome.changes} == set(VERDICTS)
    expected = {rule for history in HISTORIES.values() for rule in history.rules}
    assert {rule for outcome in outcomes for rule in outcome.rules} == expected


def test_a_group_whose_records_are_rare_does_not_fill_the_history_of_verdicts() -> None:
    changes = OUTCOMES["The topic gets a record every quarter of an hour"].changes
    assert len([(one.verdict.verdict, one.verdict.why) for one in changes]) <= 6  # and not one or two for each record


@pytest.mark.parametrize("name", ["down while thirty applications", "the descriptions of thirty applications"])
def test_many_groups_with_one_cause_have_an_alert_each_and_are_told_of_in_few_messages(name: str) -> None:
    outcome = outcome_with(name)
    assert {one.rule for one in outcome.fired} == {"StreamsGroupDescriptionFailed"}
    assert len({one.group_id for one in outcome.fired}) == len(outcome.fired) == 30
    assert len(outcome.notifications) <= 12  # they start one after the other, for ten minutes: one a minute


def test_each_alert_about_the_health_of_a_group_is_what_is_wrong_since_when_and_the_next_step_in_two_lines() -> None:
    alerts = [one for history in CHOSEN for one in OUTCOMES[history.name].alerts if one.opened_at]
    assert {one.rule for one in alerts} == set(HEALTH_RULES)
    for one in alerts:
        check_text(one)


def test_the_alert_of_a_crash_loop_is_resolved_once_the_application_has_stayed_up() -> None:
    crashing = HISTORIES["The only instance is up for 20 s in every 320 s"]
    outcome = run(replace(crashing, seconds=crashing.seconds + 2 * HOUR))
    (fired,) = outcome.fired
    last_start = crashing.operations[-1].at
    assert fired.ended_at is not None
    assert 10 * MINUTE <= fired.ended_at - last_start <= 25 * MINUTE
    (alert,) = outcome.alerts
    assert (alert.ended_by, alert.timeline[-1].verdict) == ("evidence", "Unknown")  # of its lag nothing is known


# What verdicts may not say, whatever is alerted: that all is well of a group that restores, hangs or is not known


def said(*operations: Operations, hours: float = 4.0, after: float = BEGINS, **others: object) -> list[Verdict]:
    """Return the verdicts of a history after a time, and the one of then."""
    changes = run(ordinary("", *operations, hours=hours, **others)).changes
    seconds = [(one.at - START).total_seconds() for one in changes]
    first = max(n for n, at in enumerate(seconds) if not n or at <= after)
    return [one.verdict for one in changes[first:]]


def verdicts(found: list[Verdict]) -> list[str]:
    """Return their names, each once in a row."""
    return [one.verdict for n, one in enumerate(found) if not n or one.verdict != found[n - 1].verdict]


@pytest.mark.parametrize(
    ("ends", "comes"),
    [(stop(names(1), BEGINS), start(["x"], BEGINS + 20, **STATE)), (stop(["i0"], BEGINS), start(["x"], BEGINS - 10))],
    ids=["it is started again", "another one takes over"],
)
def test_offsets_do_not_advance_while_state_is_restored(ends: Operations, comes: Operations) -> None:
    reads = do(TRAFFIC, "read", restore_seconds=600.0)
    started = [one for one in comes if one.arguments.setdefault("changelogs", STATE["changelogs"])]
    found = said(steady(1, **STATE), reads, ends, started, after=BEGINS + 120, topics=TOPICS)
    assert verdicts(found)[-2:] == [RESTORING, OK]
    assert OK not in verdicts(found)[:-1]


def test_records_of_a_topic_that_was_created_again_that_nobody_reads_are_no_advance() -> None:
    again = do(BEGINS + 600, "recreate_topics"), do(BEGINS + 600, "stick"), do(BEGINS + 700, "change", rate=0.01)
    found = said(working(2), do(BEGINS, "change", rate=0.0), *again, after=BEGINS + 880)
    assert verdicts(found) == [UNKNOWN, STALLED]
    assert "0 offsets" not in found[-1].why


def test_a_loop_of_an_application_whose_topic_is_missing_is_not_interrupted_processing() -> None:
    loops = [crash_loop(name, BEGINS, 12, BEGINS + HOUR) for name in names(2)]
    found = said(start(names(2), BEGINS - 30), *loops, do(BEGINS + 1, "set_topic", topic="in", partitions=None))
    assert not {UNSTABLE, OK, IDLE} & {one.verdict for one in found}

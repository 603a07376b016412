"""Relation C: a job that begins to read a compacted log says the same from then on as one that reads the whole log."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from streaming_app.groups.row import to_row
from tests.histories.bed import Outcome
from tests.histories.history import History
from tests.histories.judged import name_of
from tests.relations.compaction import COMPACTIONS, Compaction, moments
from tests.relations.engine import Told, a_tenth, differences, excepted, other_verdicts, play, told

pytestmark = pytest.mark.slow

OF_THE_PAST: Mapping[str, str] = {
    "StreamsGroupUnstable": "it counts how often members left, or tasks were assigned, in the last 75 minutes",
    "StreamsGroupUnsolicitedDescription": "only two records one after the other show a push that nobody asked for",
    "StreamsGroupDescriptionMissing": "it expects a description of a group that had one before its newest records",
}
"""The rules whose problems may be missing or late if they are of records before the start, each with the reason."""
LOOP = "does not stay up"
"""In the text of a problem that counts how often the application was started."""
EXCEPTIONS: Mapping[str, str] = {
    "the clock of its broker is an hour behind": "in the whole log its crashes are two problems, as the first loop is seen",
}
PAST_COLUMNS: Mapping[str, str] = {
    "first_seen_at": "the creation",
    "description_since": "the record before the newest one with the same status",
    "state_since": "the record that began the state, unless the newest one did",
    "first_described_at": "the description of an earlier epoch",
    "last_unsolicited_push_at": "the record before a push",
    "replacing": "the members that left",
    "missing_topics": "the topics that were missing when its members gave up",
    "client_host": "the host of its first member, which may be gone",
}
"""The columns of `groups` that only the past shows: they are null. In the others, values are."""
OTHER_COLUMNS: Mapping[str, str] = {
    "topology_epochs": "its times are null",
    "last_changes": "the old values are null",
    "unsolicited_pushes": "it counts those in the log: at least so many, if `first_seen_at` is null",
    "client_host": "the host of the first member that is left",
}
SECONDS = 60.0


@pytest.mark.parametrize("history", a_tenth("C"), ids=name_of)
def test_a_compacted_log_brings_the_same_verdicts_and_problems_as_the_whole_one(history: History) -> None:
    check(history)


def check(history: History) -> None:
    """Assert that relation C holds for a history, at each of its moments and for each kind of compaction."""
    for start in moments(history):
        whole = play(history, start=start)
        for compaction in COMPACTIONS:
            other = play(history, start=start, transform=partial(compaction.at, start))
            where = history.name, start, compaction.name
            assert wrong_problems(history, whole, other, start) == [], where
            assert wrong_verdicts(history, whole, other, start) == [], where
            assert wrong_rows(whole, other) == [], where


def wrong_problems(history: History, whole: Outcome, other: Outcome, start: float) -> list[object]:
    """Return what differs between the problems although it may not."""
    if excepted(history, EXCEPTIONS):
        return []
    found = differences(told(whole, after=start), told(other, after=start))
    wrong: list[object] = [("missed", one) for one in found.missed if not is_past(one, start)]
    wrong += [("false", one) for one in found.false]
    for one, two in found.same:
        if is_past(one, start) or (LOOP in one.why and one.since < start):
            continue
        is_later = abs(max(one.opened_at, start) - max(two.opened_at, start)) > SECONDS
        is_other = (one.severity, one.ended_at, one.ended_by) != (two.severity, two.ended_at, two.ended_by)
        since = two.since - one.since
        if is_later or is_other or since < -SECONDS or (since > SECONDS and "since at least" not in two.why):
            wrong.append(("other", one, two))
    return wrong


def is_past(one: Told, start: float) -> bool:
    """Return whether a problem may be missing, because its evidence are records before the start."""
    return one.rule in OF_THE_PAST and one.since < start


def wrong_verdicts(history: History, whole: Outcome, other: Outcome, start: float) -> list[object]:
    """Return the times at which the verdicts differ although they may not."""
    counted = [
        one
        for one in (*told(whole, after=start), *told(other, after=start))
        if is_past(one, start) or LOOP in one.why
    ]
    return [
        one
        for one in other_verdicts(whole, other, after=start, until=history.seconds)
        if not any(it.group_id == one.group_id and it.opened_at <= one.end and one.begin <= (it.ended_at or 1e9) for it in counted)
    ]


def wrong_rows(whole: Outcome, other: Outcome) -> list[object]:
    """Return the columns of groups that differ although they may not, or have a value that the log does not prove."""
    wrong: list[object] = []
    for group_id, group in whole.groups.items():
        if group_id not in other.groups:
            if group.state != "Dead":
                wrong.append((group_id, "is missing"))
            continue
        row, known = to_row("c", group), to_row("c", other.groups[group_id])
        wrong += [
            (group_id, name, row[name], value)
            for name, value in known.items()
            if value != row[name] and name not in OTHER_COLUMNS and not (value is None and name in PAST_COLUMNS)
        ]
    return wrong

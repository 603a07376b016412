"""Relation C: a job that begins to read a compacted log says the same from then on as one that reads the whole log."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streaming_app.groups.row import to_row
from streaming_app.groups.snapshot import group_snapshot
from streaming_app.health.facts import Facts
from streaming_app.health.judge import judge
from streaming_app.health.verdict import DOWN, RESTORING, STALLED
from tests.histories.history import History
from tests.histories.judged import name_of
from tests.histories.outcome import Outcome, Told
from tests.recorded import record as recorded
from tests.recorded import record_classic
from tests.recorded.record import VERSIONS, read
from tests.recorded.test_recorded import fold_log
from tests.relations.compaction import AT_LEAST, COMPACTIONS, OF_THE_PAST, moments
from tests.relations.engine import a_fifth, differences, excepted, other_verdicts, play, random_of, told
from tests.relations.renamed import fold
from tests.support.health_harness import waiting
from tests.support.offsets_log import compare_rows, sort_list

pytestmark = pytest.mark.slow
Rows = Mapping[str, Mapping[str, Any]]

COUNTED: Mapping[str, str] = {
    "does not stay up": "it counts how often the application was started in the last two hours",
    "members left after less than": "it counts short stays of members in the last 75 minutes",
    "new assignments in": "it counts assignments in the last ten minutes",
}
"""Parts of the texts of Down and Unstable that count records: if these are of before the start, they come later."""
EXCEPTIONS: Mapping[str, str] = {
    "the clock of its broker is an hour behind": "its first loop is seen in the whole log only",
}
PAST_COLUMNS: Mapping[str, str] = {
    "first_seen_at": "the creation",
    "description_since": "the record before the newest one with the same status",
    "state_since": "the record that began the state, unless the newest one did",
    "first_described_at": "the description of an earlier epoch",
    "last_unsolicited_push_at": "the record before a push",
    "causes_since_assignment": "the members that left, where no assignment followed",
    "missing_topics": "the topics that were missing when its members gave up",
    "client_host": "the host of its first member, which may be gone",
}
"""The columns of `groups` that only the past shows: they are null. In the others, values are."""
OTHER_COLUMNS: Mapping[str, str] = {
    "topology_epochs": "its times are null",
    "last_changes": "the old values are null",
    "unsolicited_pushes": "it counts those in the log: at least so many, if `first_seen_at` is null",
    "client_host": "the host of the first member that is left",
    "replacing": "the members that left, as far as they are known",
    "description_stale_since": "the topology, if a description of it that was cleaned up is not seen",
}
SECONDS = 60.0
_STALLED = "StreamsGroupStalled"


@pytest.mark.parametrize("history", a_fifth("C"), ids=name_of)
def test_a_compacted_log_brings_the_same_verdicts_and_alerts_as_the_whole_one(history: History) -> None:
    check(history)


def check(history: History) -> None:
    """Assert that relation C holds for a history, at each of its moments and for each kind of compaction."""
    for start in moments(history):
        whole = play(history, start=start)
        for compaction in COMPACTIONS:
            other = play(history, start=start, transform=partial(compaction.at, start))
            found = wrong_alerts(history, whole, other, start)
            found += [*wrong_verdicts(history, whole, other, start), *wrong_rows(whole, other)]
            assert not found, (history.name, start, compaction.name, found)


def wrong_alerts(history: History, whole: Outcome, other: Outcome, start: float) -> list[object]:
    """Return what differs between the alerts although it may not."""
    if excepted(history, EXCEPTIONS):
        return []
    found = differences(told(whole, after=start), told(other, after=start))
    spells = other_verdicts(whole, other, after=start, until=history.seconds)
    restoring = {one.group_id for one in spells if one.other == RESTORING}  # also where tasks have not moved, see below
    missed = [one for one in found.missed if not (one.rule == _STALLED and one.group_id in restoring)]
    wrong: list[object] = [("missed", one) for one in missed if not is_past(one, start)]
    wrong += [("false", one) for one in found.false]
    for one, two in found.same:
        if is_past(one, start):
            continue
        is_later = abs(max(one.opened_at, start) - max(two.opened_at, start)) > SECONDS
        is_other = (one.severity, one.ended_at, one.ended_by) != (two.severity, two.ended_at, two.ended_by)
        since, at_least = two.since - one.since, "since at least" in two.why or two.rule in AT_LEAST
        if is_later or is_other or since < -SECONDS or (since > SECONDS and not at_least):
            wrong.append(("other", one, two))
    return wrong


def is_past(one: Told, start: float) -> bool:
    """Return whether an alert may be missing or late, because its evidence are records before the start."""
    return one.rule in OF_THE_PAST or (one.since < start and any(text in one.why for text in COUNTED))


def wrong_verdicts(history: History, whole: Outcome, other: Outcome, start: float) -> list[object]:
    """Return the times at which the verdicts differ although they may not."""
    counted = [
        (one.group_id, one.opened_at, one.ended_at or history.seconds)
        for one in (*told(whole, after=start), *told(other, after=start))
        if any(text in one.why for text in COUNTED)
    ]
    return [
        one
        for one in other_verdicts(whole, other, after=start, until=history.seconds)
        # A static member that came back keeps its tasks, and only the past shows since when the group is Stable.
        if not (one.verdict == STALLED and one.other == RESTORING)
        and not any(
            one.group_id == group_id and opened < one.end and one.begin < end for group_id, opened, end in counted
        )
    ]


def wrong_rows(whole: Outcome, other: Outcome) -> list[object]:
    """Return the columns of groups that differ although they may not, or have a value that the log does not prove."""
    rows, known = ({one: to_row("c", of[one]) for one in of} for of in (whole.groups, other.groups))
    return differing_columns(rows, known)


def differing_columns(rows: Rows, known: Rows) -> list[object]:
    """Return the columns of a compacted log that differ from those of the whole one although they may not."""
    wrong: list[object] = [(one, "is missing") for one in rows if one not in known and rows[one]["state"] != "Dead"]
    for group_id, row in known.items():
        wrong += [
            (group_id, name, rows[group_id][name], value)
            for name, value in row.items()
            if sort_list(value) != sort_list(rows[group_id][name])
            if name not in OTHER_COLUMNS and not (value is None and name in PAST_COLUMNS)
        ]
    return wrong


CLASSIC_COLUMNS = {"joined_at": "the first record of a member", "members_since": "of all members"}
"""The columns of an application with the classic protocol that only the past shows: they are null."""
FROM_FIRST_RECORD = "assignment_epoch"
"""The first generation in which a member had a task, as far as records were read: it is of the first record left."""


@pytest.mark.parametrize("left", range(1, 8))
def test_a_compacted_log_of_an_application_with_the_classic_protocol_gives_the_same_row(left: int) -> None:
    records, _ = read(record_classic.FILE)
    assert len(records) > left
    whole, known = (_divided(fold(some)["groups"][0]) for some in (records, records[-left:]))
    assert differing_columns({"g": whole[0]}, {"g": known[0]}) == []
    for values, seen in zip(whole[1], known[1], strict=True):
        for name in CLASSIC_COLUMNS.keys() & values.keys():
            assert seen[name] in {None, values[name]}, name
        assert (seen.get(FROM_FIRST_RECORD) or 0) >= (values.get(FROM_FIRST_RECORD) or 0)


def _divided(row: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a row without the values that only the past shows, and these: of the group, its members and its tasks."""
    of_past = {*CLASSIC_COLUMNS, FROM_FIRST_RECORD}
    nested = {table: sorted(row[table], key=_identity) for table in ("members", "assignments")}
    kept = {name: value for name, value in (row | nested).items() if name not in of_past}
    kept |= {table: [_without(one, of_past) for one in those] for table, those in nested.items()}
    every = (row, *nested["members"], *nested["assignments"])
    return kept, [{name: value for name, value in one.items() if name in of_past} for one in every]


def _without(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _identity(one: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(one.get(name)) for name in ("member_id", "role", "subtopology_id", "partition"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(3))
def test_the_compacted_log_of_a_broker_gives_the_same_rows_and_verdicts(version: str, seed: int) -> None:
    """Keep only the newest record of every key, and of the tombstones some or none; in batches of any size."""
    records, descriptions = read(Path(recorded.__file__).parent / f"{version}.jsonl.gz")
    random, newest = random_of("C", version, seed), {one.key: one for one in records}
    kept = [one for one in records if newest[one.key] is one and (one.value is not None or random.random() < seed / 2)]
    assert len(kept) < len(records)
    rows, known = fold_log(records).rows, fold_log(kept, random).rows
    assert compare_rows(known, descriptions) == []
    assert differing_columns(rows, known) == []
    empty = {one for one, row in rows.items() if row["state"] == "Empty"}
    assert empty
    for one in empty:
        for row in (rows[one], known[one]):
            now = row["updated_at"] + timedelta(hours=1)
            found = judge(Facts(group_snapshot(row), now, work=waiting(row["updated_at"], now)))
            assert (found.verdict, found.since) == (DOWN, row["updated_at"])

"""Any records of a group, in any order: what is read twice makes no difference, and no two events have the same key."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streaming_app.groups.fold import Fold
from streaming_app.groups.group import Event, GroupState, LogRecord
from streaming_app.groups.row import from_row, to_row
from tests.groups.records import GROUP, M1, M2, TARGET, TOPOLOGY, at, current, fold, member, metadata

_EPOCHS = st.integers(2, 5)
_DESCRIBED = st.integers(-2, 1)
_TASKS = st.sampled_from([None, [0], [0, 1]])
_MEMBERS = st.sampled_from([M1, M2])
_TOMBSTONES = st.tuples(st.sampled_from([17, 20, 23]), st.just(GROUP)) | st.tuples(
    st.sampled_from([19, 21, 22]), _MEMBERS
)


def _records(kind: int, key: st.SearchStrategy[Any], value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(kind), key, value)


_STEPS = st.one_of(
    _records(17, st.just(GROUP), st.builds(metadata, _EPOCHS, st.integers(0, 1), _DESCRIBED, _DESCRIBED)),
    _records(19, _MEMBERS, st.builds(member, st.integers(0, 1))),
    _records(20, st.just(GROUP), _EPOCHS.map(lambda epoch: {"assignment_epoch": epoch, "assignment_timestamp": 0})),
    _records(21, _MEMBERS, st.just(TARGET)),
    _records(22, _MEMBERS, st.builds(current, _EPOCHS, st.integers(0, 3), _TASKS, _TASKS)),
    _records(23, st.just(GROUP), st.integers(0, 1).map(lambda epoch: {**TOPOLOGY, "epoch": epoch})),
    _TOMBSTONES.map(lambda one: (*one, None)),
)
"""Kind, key and value of a record of a group with two members."""


@st.composite
def logs(draw: st.DrawFn) -> list[LogRecord]:
    """Draw a log; records with the same time are of one operation."""
    steps = draw(st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 60]), _STEPS), min_size=1, max_size=25))
    records, second = [], 0
    for offset, (pause, (kind, key, value)) in enumerate(steps):
        second += pause
        records.append(LogRecord(offset, at(second), kind, key, value))
    return records


def key(event: Event) -> tuple[Any, ...]:
    """Return what identifies an event in the table."""
    return event.kind, event.member_id, event.offset


def stored(folded: Fold, before: GroupState | None = None) -> GroupState | None:
    """Return the state that the next batch reads: a row is written only if it may have changed."""
    return from_row(to_row("c", folded.group_state)) if folded.touched else before


@given(logs(), st.integers(0, 24))
def test_what_is_read_twice_changes_nothing(log: list[LogRecord], begin: int) -> None:
    state = stored(fold(log))
    again = fold(log[begin:], state)
    assert again.events == again.retracted == []
    assert stored(again, state) == state


@given(logs())
def test_no_two_events_have_the_same_key(log: list[LogRecord]) -> None:
    keys = list(map(key, fold(log).events))
    assert len(keys) == len(set(keys))

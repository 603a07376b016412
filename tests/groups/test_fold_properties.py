"""Any records of a group, in any order: what is read twice makes no difference, and no two events have the same key."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from streaming_app.groups.fold import Fold
from streaming_app.groups.group import SINCE, Group, GroupEvent, LogRecord
from streaming_app.groups.row import from_row, to_row
from tests.groups.classic_records import AT_ONCE, NO_REBALANCE, P1, P2, assignment, generation, subscription, thread
from tests.groups.records import GROUP, M1, M2, TARGET, TOPOLOGY, at, current, fold, member, metadata

_EPOCHS = st.integers(2, 5)
_DESCRIBED = st.integers(-2, 1)
_TASKS = st.sampled_from([None, [0], [0, 1]])
_MEMBERS = st.sampled_from([M1, M2])
_TOPOLOGIES = st.sampled_from([TOPOLOGY, {**TOPOLOGY, "subtopologies": []}])
_TOMBSTONES = st.tuples(st.sampled_from([17, 20, 23]), st.just(GROUP)) | st.tuples(
    st.sampled_from([19, 21, 22]), _MEMBERS
)


def _records(kind: int, key: st.SearchStrategy[Any], value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(kind), key, value)


def _member(topology_epoch: int, instance_id: str | None) -> dict[str, Any]:
    return {**member(topology_epoch), "instance_id": instance_id}


_CLASSIC_TASKS = st.lists(st.sampled_from([(0, 0), (0, 1), (1, 0)]), max_size=2, unique=True)
_ASSIGNMENTS = st.builds(
    assignment, _CLASSIC_TASKS, _CLASSIC_TASKS, next_rebalance=st.sampled_from([NO_REBALANCE, AT_ONCE, 900_000])
)
_SUMS = st.dictionaries(st.sampled_from([(0, 0), (0, 1), (1, 0)]), st.sampled_from([-2, 0, 5]))
_TOLD = st.builds(subscription, st.sampled_from([P1, P2]), _SUMS) | st.just(b"?")
_THREAD = st.builds(thread, st.sampled_from(["m1", "m2"]), _TOLD, _ASSIGNMENTS, instance=st.sampled_from([None, "i1"]))
_THREADS = st.builds(
    lambda number, threads: generation(number, *threads),
    st.integers(0, 4),
    st.lists(_THREAD, min_size=1, max_size=2, unique_by=lambda one: one["member_id"]),
)
_STEPS = st.one_of(
    _records(17, st.just(GROUP), st.builds(metadata, _EPOCHS, st.integers(0, 1), _DESCRIBED, _DESCRIBED)),
    _records(19, _MEMBERS, st.builds(_member, st.integers(0, 1), st.sampled_from([None, None, "i1"]))),
    _records(20, st.just(GROUP), _EPOCHS.map(lambda epoch: {"assignment_epoch": epoch, "assignment_timestamp": 0})),
    _records(21, _MEMBERS, st.just(TARGET)),
    _records(22, _MEMBERS, st.builds(current, _EPOCHS, st.integers(0, 3), _TASKS, _TASKS)),
    _records(23, st.just(GROUP), st.builds(lambda one, epoch: {**one, "epoch": epoch}, _TOPOLOGIES, st.integers(0, 1))),
    _TOMBSTONES.map(lambda one: (*one, None)),
    _records(2, st.just({"group": "g"}), st.sampled_from([{"protocol_type": "consumer"}, None])),
    _records(2, st.just(GROUP), st.builds(generation, st.integers(0, 4)) | _THREADS),
)
"""Kind, key and value of a record of a group with two members, or of a classic group that takes its id: of Kafka
Streams, or of other clients."""


def log_of(steps: Sequence[tuple[float | None, tuple[int, Any, Any]]]) -> list[LogRecord]:
    """Return the records of steps of (second, (kind, key, value)); without a second, a record has no time."""
    return [
        LogRecord(offset, None if second is None else at(second), *step) for offset, (second, step) in enumerate(steps)
    ]


@st.composite
def logs(draw: st.DrawFn) -> list[LogRecord]:
    """Draw a log; records with the same time are of one operation."""
    steps = draw(st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 60, 900]), _STEPS), min_size=1, max_size=25))
    seconds = accumulate(pause for pause, _ in steps)
    without_time = draw(st.sets(st.integers(0, 24), max_size=2) if draw(st.booleans()) else st.just(set()))
    return log_of(
        [
            (None if number in without_time else second, step)
            for number, (second, (_, step)) in enumerate(zip(seconds, steps, strict=True))
        ]
    )


def key(event: GroupEvent) -> tuple[Any, ...]:
    """Return what identifies an event in the table."""
    return event.kind, event.member_id, event.offset


def stored(folded: Fold, before: Group | None = None) -> Group | None:
    """Return the state that the next batch reads: a row is written only if it may have changed."""
    return from_row(to_row("c", folded.group)) if folded.touched else before


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


@given(logs(), st.integers(1, 24))
def test_a_copy_stays_as_it_was_while_the_fold_goes_on(log: list[LogRecord], cut: int) -> None:
    whole = Fold.of("g", 3, None)
    whole.add(log[:cut])
    copied = whole.copy()
    before = to_row("c", copied.group)
    assert before == to_row("c", whole.group)
    whole.add(log[cut:])
    whole.close()
    assert to_row("c", copied.group) == before
    copied.add(log[cut:])
    copied.close()
    assert to_row("c", copied.group) == to_row("c", whole.group)
    assert copied.events == whole.events


@given(logs())
def test_a_row_marks_the_members_with_an_older_topology(log: list[LogRecord]) -> None:
    row = to_row("c", fold(log).group)
    epochs = {one["member_id"]: one["topology_epoch"] for one in row["members"]}
    older = {name for name, epoch in epochs.items() if None not in (epoch, row["topology_epoch"])}
    older = {name for name in older if epochs[name] < row["topology_epoch"]}
    assert {one["member_id"] for one in row["members"] if one["stale_topology"]} == older
    assert row["stale_member_count"] == (None if row["protocol"] == "classic" else len(older))


_SETTLED = [(0, (kind, M1, value)) for kind, value in ((19, member()), (22, current(2, 1)))]
_UNSETTLED = [(1, (kind, M2, value)) for kind, value in ((19, member()), (22, current(2, 2, [0], [1])))]


@example(
    log_of(
        [
            *((0, (kind, GROUP, value)) for kind, value in ((23, TOPOLOGY), (17, metadata(2)))),
            (0, (20, GROUP, {"assignment_epoch": 2, "assignment_timestamp": 0})),
            *_SETTLED,
            *_UNSETTLED,
            (2, (19, M1, None)),
            (3, (22, M2, current(2, 1))),
        ]
    )
)
@given(logs())
def test_a_row_holds_all_that_the_next_batch_needs(log: list[LogRecord]) -> None:
    folded = fold(log)
    row = to_row("c", folded.group)
    again = from_row(row)
    assert to_row("c", again) == row
    assert again.derive() == folded.group.derive()
    names = ["state"] if row["protocol"] == "classic" else [*SINCE]
    assert not folded.touched or [again.derive()[name] for name in names] == [row[name] for name in names]
    assert again.client_host == folded.group.client_host


_ASSIGNED = (20, GROUP, {"assignment_epoch": 2, "assignment_timestamp": 0})
_FAILED_ONCE = (17, GROUP, metadata(2, 0, stored=0, failed=0))
_UNCERTAIN = (17, GROUP, metadata(2, 0, stored=-2, failed=0))
_NO_GROUP = (17, GROUP, None)
_JOINS = (19, M1, member())


@example(log_of([(0, (23, GROUP, TOPOLOGY)), (1, _JOINS), (2, _FAILED_ONCE), (3, _UNCERTAIN), (4, _FAILED_ONCE)]), [4])
@example(log_of([(0, _ASSIGNED), (1, _NO_GROUP), (1, _ASSIGNED), (1, _FAILED_ONCE)]), [3])
@example(log_of([(0, (17, GROUP, metadata(3))), (0, _JOINS), (1, _JOINS), (1, (17, GROUP, metadata(2)))]), [3])
@example(log_of([(0, _FAILED_ONCE), (0, (22, M1, current())), (1, _JOINS), (1, _NO_GROUP)]), [3])
@example(
    log_of(
        [
            (0, (17, GROUP, metadata(2))),
            (1, _JOINS),
            (1, (17, GROUP, metadata(3))),
            (2, _NO_GROUP),
            (2, _FAILED_ONCE),
            (2, _ASSIGNED),
        ]
    ),
    [5],
)
@example(
    log_of([(0, _JOINS), (900, (19, M1, None)), (900, (19, M2, member())), (900, (17, GROUP, metadata(3)))]), [2, 3]
)
@example(log_of([(0, _ASSIGNED), (0, (19, M1, None)), (0, (22, M1, current()))]), [2])
@example(log_of([(0, (23, GROUP, TOPOLOGY)), (0, _FAILED_ONCE)]), [1])
@example(log_of([(0, _FAILED_ONCE), (0, _JOINS), (1, _NO_GROUP), (1, (2, {"group": "g"}, {}))]), [3])
@example(
    log_of([(0, (17, GROUP, metadata(2))), (1, (17, GROUP, metadata(3))), (1, _JOINS), (2, (20, GROUP, None))]), [2]
)
@given(logs(), st.lists(st.integers(1, 24), max_size=3))
def test_where_batches_end_makes_no_difference(log: list[LogRecord], cuts: list[int]) -> None:
    """The row is the same, and so are the events that are left when retracted ones are taken away."""
    whole = fold(log)
    state: Group | None = None
    events: dict[tuple[Any, ...], GroupEvent] = {}
    ends = sorted({min(cut, len(log)) for cut in cuts} | {len(log)})
    for begin, end in pairwise([0, *ends]):
        part = fold(log[begin:end], state)
        for event in part.retracted:
            events.pop(key(event), None)
        events |= {key(event): event for event in part.events}
        state = stored(part, state)
    expected = stored(whole)
    for one in filter(None, (state, expected)):
        one.last_changes.sort(key=str)  # they are a set
    assert state == expected
    assert events == {key(event): event for event in whole.events}

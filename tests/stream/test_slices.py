"""How a batch is divided: by the bytes of its large records, and further each time that it fails."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.stream.slices import SLICE_BYTES, WHOLE, BatchPlans, Ordered, divide, find_heavy, next_plan
from streaming_app.stream.stream_state import BatchPlan, Slice, StateFile
from streaming_app.tables.location import Location
from tests.support.frames import write_offset_log

MB = 1 << 20
HALF = Slice((0, 5), 1 << 31)


def plan(halvings: int = 0, batch: int = 7, slices: tuple[Slice, ...] = ()) -> BatchPlan:
    return BatchPlan("w", batch, halvings, slices)


@pytest.mark.parametrize(
    ("last", "following"),
    [
        (None, plan()),
        (replace(plan(4), writer="of another query"), plan()),
        (plan(4, batch=9), plan()),
        (plan(2, batch=6, slices=(HALF, *WHOLE)), plan(1)),
        (plan(15, batch=6), plan(3)),
        (plan(3, slices=(HALF, *WHOLE)), plan(3, slices=(HALF, *WHOLE))),
    ],
)
def test_a_batch_is_halved_from_the_first_repeat_and_each_success_takes_one_back(
    last: BatchPlan | None, following: BatchPlan
) -> None:
    assert next_plan(last, "w", 7) == following
    halved = following if following.slices else replace(following, halvings=following.halvings + 1)
    assert next_plan(last, "w", 7, begun=True) == halved


def measured(records: Mapping[tuple[int, int], int], apart: int | None = None) -> pa.Table:
    """Return what is known of records of these sizes, by partition and offset; all are of the group `apart`."""
    columns = [[place[0] for place in records], [place[1] for place in records], list(records.values())]
    arrays = [pa.array(one, kind) for one, kind in zip(columns, (pa.int32(), pa.int64(), pa.int32()), strict=True)]
    hashes = pa.array([apart or place[0] for place in records], pa.int64())
    return pa.table([*arrays, hashes], names=["partition", "offset", "size", "hash"])


def test_groups_that_are_written_apart_come_after_all_others_also_once_the_batch_is_halved() -> None:
    heavy = measured({(0, n): SLICE_BYTES for n in range(3)}, apart=7)
    records = Ordered(pa.concat_tables([heavy, measured({(1, 4): 9, (1, 5): 9})]), (7,))
    first = replace(plan(), apart=(7,))
    slices = divide(first, records)
    ends = [((None), False), ((0, 1), True), ((0, 2), True), (None, True)]
    assert [(one.end, one.is_apart) for one in slices] == ends
    halved = divide(replace(first, halvings=1), records)
    assert [(one.end, one.is_apart) for one in halved] == [((1, 5), False), *ends]
    assert all(one.position < following.position for one, following in pairwise(halved))
    assert next_plan(replace(first, slices=slices), "w", 7).apart == (7,)


def test_a_group_is_written_apart_if_it_is_heavy_and_little_is_left() -> None:
    light, heavy = measured({(1, n): 90 for n in range(100)}), measured({(0, n): 9 for n in range(2_000)}, apart=7)
    assert find_heavy(pa.concat_tables([light, heavy])) == (7,)
    assert find_heavy(pa.concat_tables([light, heavy.slice(1)])) == ()
    many = pa.concat_tables([measured({(1, n): 9 for n in range(number * 1_999)}, apart=number) for number in (8, 9)])
    assert find_heavy(pa.concat_tables([many, heavy])) == (7, 8, 9)
    much = measured({(partition, n): 9 for partition in range(8, 20) for n in range(1_999)})
    assert find_heavy(pa.concat_tables([much, heavy])) == ()


PLACES = st.tuples(st.integers(0, 3), st.integers(0, 400))


def index_of(slices: tuple[Slice, ...], place: tuple[int, int]) -> int:
    return next(n for n, one in enumerate(slices) if one.end is None or place < one.end)


@given(
    sizes=st.dictionaries(PLACES, st.sampled_from([1, MB, 5 * MB, 40 * MB]), min_size=1, max_size=60),
    halvings=st.integers(0, 12),
)
def test_slices_keep_the_order_of_each_partition_and_halves_keep_the_versions_of_what_was_written(
    sizes: dict[tuple[int, int], int], halvings: int
) -> None:
    places, records = sorted(sizes), Ordered(measured(sizes))
    slices = divide(plan(), records)
    for part in range(len(slices)):
        inside = [sizes[one] for one in places if sizes[one] >= MB and index_of(slices, one) == part]
        assert len(inside) <= 1 or sum(inside) <= SLICE_BYTES
    for n in range(1, halvings + 1):
        finer = divide(plan(n), records)
        assert set(slices) <= set(finer)  # a slice that was written is skipped as all of its parts
        assert all(a.position < b.position and (b.end is None or a.end < b.end) for a, b in pairwise(finer))
        parts = [(part.slice, part.records.num_rows) for part in records.parts(finer)]
        assert parts == list(Counter(finer[index_of(finer, place)] for place in places).items())
        slices = finer
    if halvings == 12:
        assert len({index_of(slices, place) for place in places}) == len(places)


def begun(directory: Path, batch: int) -> BatchPlans:
    """Return the plans of a job that has just started, with this batch."""
    checkpoint = Location.of(directory / "default")
    plans = BatchPlans(checkpoint, StateFile(checkpoint).read())
    plans.begin("w", batch)
    return plans


def test_slices_that_were_stored_are_used_again_after_a_restart(tmp_path: Path) -> None:
    large = {(0, n): 20 * MB for n in range(3)}
    plans = begun(tmp_path, 4)
    parts = plans.divide(measured(large))
    plans.trying(parts[0])
    stored = [part.slice for part in parts]
    assert len(stored) == 3
    del large[0, 1]  # it was compacted away
    assert [part.slice for part in begun(tmp_path, 4).divide(measured(large))] == [stored[0], stored[2]]


def test_an_attempt_that_fails_for_another_reason_leaves_the_slices_as_they_were(tmp_path: Path) -> None:
    write_offset_log(tmp_path / "default", range(5))
    records, slices = measured({(0, n): 100 for n in range(3)}), []
    for _ in range(9):
        plans = begun(tmp_path, 4)
        parts = plans.divide(records)
        slices.append([part.slice for part in parts])
        assert not any(plans.is_hopeless(part) for part in parts)
        plans.trying(parts[0])  # a single record
        plans.failed_otherwise()
    assert all(one == slices[0] for one in slices)


def test_a_plan_stays_until_the_next_batch_and_of_it_only_how_often_to_halve(tmp_path: Path) -> None:
    records = measured({(0, n): 20 * MB for n in range(3)})
    plans = begun(tmp_path, 4)
    parts = plans.divide(records)
    state = StateFile(Location.of(tmp_path / "default"))
    assert len(parts) == 3
    assert {part.slice for part in parts} <= set(state.read().state.plan.slices)
    plans.trying(parts[1])
    plans.begin("w", 5)
    plans.divide(measured({(0, 1): 1}))
    assert state.read().state.plan.slices  # nothing has written the state since
    plans._state.write()
    assert state.read().state.plan is None

"""How a batch is divided: by the bytes of its large records, and further each time that it fails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.stream.slices import (
    SLICE_BYTES,
    WHOLE,
    Attempt,
    Ordered,
    Slice,
    SlicePlans,
    divide,
    find_heavy,
    next_attempt,
)
from streaming_app.tables.location import Location

MB = 1 << 20
HALF = Slice((0, 5), 1 << 31)


def attempt(number: int = 1, halvings: int = 0, batch: int = 7, slices: tuple[Slice, ...] = ()) -> Attempt:
    return Attempt("w", batch, number, halvings, slices)


@pytest.mark.parametrize(
    ("last", "following"),
    [
        (None, attempt()),
        (replace(attempt(3, 4), writer="of another query"), attempt()),
        (attempt(3, 4, batch=9), attempt()),
        (attempt(3, 2, batch=6, slices=(HALF, *WHOLE)), attempt(1, 1)),
        (attempt(1, 0), attempt(2, 0)),
        (attempt(1, 0, slices=(HALF, *WHOLE)), attempt(2, 0, slices=(HALF, *WHOLE))),
        (attempt(2, 0), attempt(3, 1)),
        (attempt(3, 1), attempt(4, 2)),
        (attempt(1, 1), attempt(2, 2)),
    ],
)
def test_a_batch_is_halved_after_two_failures_then_after_each_and_each_success_takes_one_back(
    last: Attempt | None, following: Attempt
) -> None:
    assert next_attempt(last, "w", 7) == following


def measured(records: Mapping[tuple[int, int], int], apart: int | None = None) -> pa.Table:
    """Return what is known of records of these sizes, by partition and offset; all are of the group `apart`."""
    columns = [[place[0] for place in records], [place[1] for place in records], list(records.values())]
    arrays = [pa.array(one, kind) for one, kind in zip(columns, (pa.int32(), pa.int64(), pa.int32()), strict=True)]
    hashes = pa.array([apart or place[0] for place in records], pa.int64())
    return pa.table([*arrays, hashes], names=["partition", "offset", "size", "hash"])


def test_groups_that_are_written_apart_come_after_all_others_also_once_the_batch_is_halved() -> None:
    heavy = measured({(0, n): SLICE_BYTES for n in range(3)}, apart=7)
    records = Ordered(pa.concat_tables([heavy, measured({(1, 4): 9, (1, 5): 9})]), (7,))
    first = replace(attempt(), apart=(7,))
    slices = divide(first, None, records)
    ends = [((None), False), ((0, 1), True), ((0, 2), True), (None, True)]
    assert [(one.end, one.is_apart) for one in slices] == ends
    halved = divide(replace(first, number=3, halvings=1, slices=slices), first, records)
    assert [(one.end, one.is_apart) for one in halved] == [((1, 5), False), *ends]
    assert all(one.position < following.position for one, following in pairwise(halved))
    assert next_attempt(replace(first, slices=slices), "w", 7).apart == (7,)


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
    current, slices = attempt(), divide(attempt(), None, records)
    for part in range(len(slices)):
        inside = [sizes[one] for one in places if sizes[one] >= MB and index_of(slices, one) == part]
        assert len(inside) <= 1 or sum(inside) <= SLICE_BYTES
    for n in range(1, halvings + 1):
        current = replace(current, slices=slices)
        following = replace(attempt(n + 1, n), slices=slices)
        finer = divide(following, current, records)
        assert set(slices) <= set(finer)  # a slice that was written is skipped as all of its parts
        assert all(a.position < b.position and (b.end is None or a.end < b.end) for a, b in pairwise(finer))
        parts = [(part.slice, part.records.num_rows) for part in records.parts(finer)]
        assert parts == list(Counter(finer[index_of(finer, place)] for place in places).items())
        slices, current = finer, following
    if halvings == 12:
        assert len({index_of(slices, place) for place in places}) == len(places)


def begun(directory: Path, batch: int) -> SlicePlans:
    """Return the plans of a job that has just started, with this batch."""
    plans = SlicePlans(Location.of(directory / "default"))
    plans.begin("w", batch)
    return plans


def test_slices_that_were_stored_are_used_again_after_a_restart(tmp_path: Path) -> None:
    large = {(0, n): 20 * MB for n in range(3)}
    stored = [part.slice for part in begun(tmp_path, 4).divide(measured(large))]
    assert len(stored) == 3
    del large[0, 1]  # it was compacted away
    assert [part.slice for part in begun(tmp_path, 4).divide(measured(large))] == [stored[0], stored[2]]


def test_slices_that_the_release_before_has_stored_are_used_again(tmp_path: Path) -> None:
    stored = {"writer": "w", "batch": 4, "number": 1, "halvings": 0, "apart": [7]}
    slices = [[None, 100, False], [[0, 2], 200, True], [None, 300, True]]
    (tmp_path / "default.slices.json").write_text(json.dumps({**stored, "slices": slices}), "utf-8")
    records = pa.concat_tables([measured({(0, n): 9 for n in range(4)}, apart=7), measured({(1, 4): 9})])
    parts = begun(tmp_path, 4).divide(records)
    assert [(part.slice.position, part.records["offset"].to_pylist()) for part in parts] == [
        (100, [4]),
        (200, [0, 1]),
        (300, [2, 3]),
    ]


def test_a_batch_that_ends_the_process_twice_is_halved_at_the_third_start(tmp_path: Path) -> None:
    records = measured({(0, n): 1 for n in range(100)})
    sizes = [len((plans := begun(tmp_path, 0)).divide(records)) for _ in range(5)]
    assert sizes == [1, 1, 2, 4, 8]
    for batch in range(1, 5):
        plans.begin("w", batch)
        sizes.append(len(plans.divide(records)))
    assert sizes[5:] == [4, 2, 1, 1]


@pytest.mark.parametrize("text", ["", "[]", '{"slices": 3}', '{"writer": "w"}'])
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "default.slices.json").write_text(text, "utf-8")
    assert [part.slice for part in begun(tmp_path, 3).divide(measured({(0, 1): 1}))] == [*WHOLE]

"""How a batch is divided: by the bytes of its large records, and further each time that it fails."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.stream.slices import (
    SLICE_BYTES,
    WHOLE,
    Attempt,
    Boundary,
    LargeRecord,
    Offsets,
    Slice,
    SlicePlans,
    divide,
    next_attempt,
)
from streaming_app.tables.location import Location
from tests.support.warehouses import local_files

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


def test_groups_that_are_written_apart_come_after_all_others_also_once_the_batch_is_halved() -> None:
    large = [LargeRecord(0, n, SLICE_BYTES) for n in range(3)]
    first = replace(attempt(), apart=(7,))
    slices = divide(first, None, {0: Offsets(0, 3)}, large)
    ends = [((None), False), ((0, 1), True), ((0, 2), True), (None, True)]
    assert [(one.end, one.is_apart) for one in slices] == ends
    halved = divide(replace(first, number=3, halvings=1, slices=slices), first, {0: Offsets(0, 3)}, large)
    assert [(one.end, one.is_apart) for one in halved] == [((0, 2), False), *ends]
    assert all(one.position < following.position for one, following in pairwise(halved))
    assert next_attempt(replace(first, slices=slices), "w", 7).apart == (7,)


PLACES = st.tuples(st.integers(0, 3), st.integers(0, 400))


def index_of(slices: tuple[Slice, ...], place: Boundary) -> int:
    return next(n for n, one in enumerate(slices) if one.end is None or place < one.end)


@given(
    records=st.dictionaries(PLACES, st.sampled_from([1, MB, 5 * MB, 40 * MB]), min_size=1, max_size=60),
    halvings=st.integers(0, 12),
)
def test_slices_keep_the_order_of_each_partition_and_halves_keep_the_versions_of_what_was_written(
    records: dict[Boundary, int], halvings: int
) -> None:
    places = sorted(records)
    offsets = {
        partition: Offsets(min(o for p, o in places if p == partition), max(o for p, o in places if p == partition) + 1)
        for partition, _ in places
    }
    large = [LargeRecord(*place, records[place]) for place in places if records[place] >= MB]
    current, slices = attempt(), divide(attempt(), None, offsets, large)
    for part in range(len(slices)):
        inside = [one.size for one in large if index_of(slices, one.place) == part]
        assert len(inside) <= 1 or sum(inside) <= SLICE_BYTES
    for n in range(1, halvings + 1):
        current = replace(current, slices=slices)
        following = replace(attempt(n + 1, n), slices=slices)
        finer = divide(following, current, offsets, large)
        assert set(slices) <= set(finer)  # a slice that was written is skipped as all of its parts
        assert all(a.position < b.position and (b.end is None or a.end < b.end) for a, b in pairwise(finer))
        assert [index_of(finer, place) for place in places] == sorted(index_of(finer, place) for place in places)
        slices, current = finer, following
    if halvings == 12:
        assert len({index_of(slices, place) for place in places}) == len(places)


def begun(directory: Path, batch: int) -> SlicePlans:
    """Return the plans of a job that has just started, with this batch."""
    plans = SlicePlans(local_files(), Location.of(directory / "default"))
    plans.begin("w", batch)
    return plans


def test_slices_that_were_stored_are_used_again_after_a_restart(tmp_path: Path) -> None:
    large = [LargeRecord(0, n, 20 * MB) for n in range(3)]
    stored = begun(tmp_path, 4).divide({0: Offsets(0, 3)}, large)
    assert len(stored) == 3
    second = begun(tmp_path, 4)
    assert not second.is_whole
    assert second.divide({0: Offsets(0, 3)}, [large[0], large[2]]) == stored  # one was compacted away


def test_a_batch_that_ends_the_process_twice_is_halved_at_the_third_start(tmp_path: Path) -> None:
    def slices_of(plans: SlicePlans) -> int:
        return len(plans.keep_whole(large=True) if plans.is_whole else plans.divide({0: Offsets(0, 100)}, []))

    sizes = [slices_of(plans := begun(tmp_path, 0)) for _ in range(5)]
    assert sizes == [1, 1, 2, 4, 8]
    for batch in range(1, 5):
        plans.begin("w", batch)
        sizes.append(slices_of(plans))
    assert sizes[5:] == [4, 2, 1, 1]


@pytest.mark.parametrize("text", ["", "[]", '{"slices": 3}', '{"writer": "w"}'])
def test_a_damaged_file_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "default.slices.json").write_text(text, "utf-8")
    assert begun(tmp_path, 3).is_whole

"""Relation E for the fold of a batch, without Spark: every call that can raise raises once, at each of its calls.

An error of one record or one group leaves everything else as it was, and what it takes away is named: the record is in
quarantine, or the group is set aside. Everything else fails the batch, and the repetition gives the rows of a run that
nothing has disturbed. So no error makes a row vanish from a batch that counts as complete.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from streaming_app.groups.fold import Fold
from streaming_app.groups.not_ready import TopicLookup
from streaming_app.stream import fold_stage, group_result
from streaming_app.stream.batch_rows import APPENDED, QUARANTINE, RETRACTED, join
from streaming_app.stream.failures import NOT_OF_RECORDS
from streaming_app.stream.fold_stage import fold_stream, sort_for_fold, stored_as_records
from tests.stream.test_fold_stage import OPTIONS, RAW, fold, group, records
from tests.support.encoded import metadata_record
from tests.support.warehouses import arrow_schema

GROUPS = "abcdef"
ERRORS = [OSError, pa.ArrowInvalid, MemoryError, pa.ArrowMemoryError, ValueError, RuntimeError]
Tables = dict[str, list[dict[str, Any]]]
Reading = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class Once:
    """Raises at one of the calls that it counts, the first of which is 0; never with -1."""

    def __init__(self, error: type[Exception], at: int = -1) -> None:
        self.calls, self._error, self._at = 0, error, at

    def __call__(self) -> None:
        self.calls += 1
        if self.calls - 1 == self._at:
            raise self._error("as an attack")

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            self()
            return call(*args, **named)

        return counted

    def reading(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in batches:
            self()
            yield one
        self()


@cache
def stored() -> pa.Table:
    rows = fold(records([pair for name in GROUPS[::2] for pair in group(name)]))
    return stored_as_records(pa.Table.from_pylist(rows, arrow_schema("groups")))


def folded(read: Reading = list, topics: TopicLookup | None = None) -> Tables:
    """Return the rows of a batch in which each record comes by itself; half of its groups have a row already."""
    later = records([pair for name in GROUPS for pair in group(name, 3, "mn")], first=100, second=9)
    batches = sort_for_fold(pa.Table.from_pylist(later, RAW), stored()).to_batches(max_chunksize=1)
    found = join(fold_stream(read(batches), OPTIONS, topics))
    tables = {name: one.to_pylist() for name, one in found.tables.items()}
    return {name: tables.get(name, []) for name in ("groups", RETRACTED, *APPENDED)}


def of_group(tables: Tables, name: str) -> Tables:
    return {table: [row for row in rows if row["group_id"] == name] for table, rows in tables.items()}


def is_named(tables: Tables) -> bool:
    """Return whether the rows of a group say what is missing."""
    return bool(tables[QUARANTINE] or any(row["set_aside_reason"] for row in tables["groups"]))


def counts(tables: Tables) -> str:
    rows = tables["groups"]
    aside = sum(bool(row["set_aside_reason"]) for row in rows)
    return f"{len(rows) - aside} written, {aside} set aside, {len(GROUPS) - len(rows)} missing"


SITES = {
    "decode": (group_result, "decode"),
    "add": (Fold, "add"),
    "close": (Fold, "close"),
    "row": (group_result, "to_row"),
    "stored": (fold_stage, "from_row"),
    "reasons": (fold_stage, "set_reasons"),
    "tables": (fold_stage, "to_tables"),
}
"""The calls that see one record or one group; the last one sees all groups of a part, and tries each alone."""
ARROWS = fold_stage._REFUSED


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_while_reading_fails_the_batch_wherever_it_comes(error: type[Exception]) -> None:
    whole, count = folded(), Once(error)
    assert folded(count.reading) == whole
    for at in range(count.calls):
        with pytest.raises(error):
            pytest.fail(f"taken for complete: {counts(folded(Once(error, at).reading))}, error at {at}")
    assert folded() == whole


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("site", SITES)
def test_an_error_of_one_group_takes_what_is_named_and_any_other_fails_the_batch(
    monkeypatch: pytest.MonkeyPatch, site: str, error: type[Exception]
) -> None:
    whole, (owner, name) = folded(), SITES[site]
    count, real = Once(error), getattr(owner, name)
    monkeypatch.setattr(owner, name, count.before(real))
    assert folded() == whole
    for at in range(count.calls):
        monkeypatch.setattr(owner, name, Once(error, at).before(real))
        if issubclass(error, NOT_OF_RECORDS) or (site == "tables" and not issubclass(error, ARROWS)):
            with pytest.raises(error):
                folded()
            continue
        disturbed = folded()
        differing = [one for one in GROUPS if of_group(disturbed, one) != of_group(whole, one)]
        assert len(differing) <= 1, (at, counts(disturbed))
        assert all(is_named(of_group(disturbed, one)) for one in differing), (at, counts(disturbed))
    monkeypatch.setattr(owner, name, real)
    assert folded() == whole


@pytest.mark.parametrize("error", ERRORS)
def test_topics_that_cannot_be_described_are_no_error_of_the_group_that_asks(error: type[Exception]) -> None:
    not_valid = [metadata_record({"group_id": name}, 3, validated_topology_epoch=7) for name in GROUPS]
    waiting = [pair for name, last in zip(GROUPS, not_valid, strict=True) for pair in (*group(name), last)]

    def run(topics: TopicLookup) -> Tables:
        batches = sort_for_fold(pa.Table.from_pylist(records(waiting, first=100), RAW), stored()).to_batches()
        return {name: one.to_pylist() for name, one in join(fold_stream(batches, OPTIONS, topics)).tables.items()}

    count = Once(error)
    assert {row["state"] for row in run(count.before(lambda _: {}))["groups"]} == {"NotReady"}
    for at in range(count.calls):
        with pytest.raises(MemoryError if issubclass(error, MemoryError) else OSError, match="as an attack"):
            run(Once(error, at).before(lambda _: {}))
    assert count.calls >= len(GROUPS)

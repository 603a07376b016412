"""A group that cannot be folded, or takes too much, is set aside: it alone, with its row and its reason."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streaming_app.groups.budget import DEFAULT
from streaming_app.groups.fold import Fold
from streaming_app.stream.batch_rows import EVENTS, QUARANTINE
from streaming_app.stream.fold_stage import fold_stream, sort_for_fold
from tests.stream.test_fold_stage import OPTIONS, RAW, TOO_LATE, assigned, by_id, fold, fold_all, group, records
from tests.support.encode import encode
from tests.support.encoded import metadata_record


def damaged(folded: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as another program would leave them, which knows nothing of the fold."""
    return [{**row, "assignments": None} for row in folded]


def test_a_group_whose_row_cannot_be_continued_is_set_aside_and_the_others_go_on() -> None:
    before = fold(records([*group("bad"), *group("good")]))
    rows = [*damaged([by_id(before)["bad"]]), by_id(before)["good"]]
    later = records([metadata_record({"group_id": name}, 3) for name in ("bad", "good")], first=50, second=9)
    whole = fold_all(later, rows)
    folded = by_id(whole["groups"])
    assert folded["good"]["group_epoch"] == 3
    bad = folded["bad"]
    assert (bad["group_epoch"], bad["last_offset"], bad["member_count"]) == (2, 2, 1)  # as it was
    assert "TypeError" in bad["set_aside_reason"]
    assert bad["set_aside_at"] == bad["updated_at"]
    assert bad["set_aside_release"] == OPTIONS.release != ""
    assert {one["group_id"] for one in whole[EVENTS]} == {"good"}


def test_a_group_that_is_set_aside_stays_as_it_is_and_costs_nothing() -> None:
    before = fold(records(group("g")))
    aside = [{**row, "set_aside_at": row["updated_at"], "set_aside_reason": "why"} for row in before]
    assert fold(records([metadata_record({"group_id": "g"}, 9)], first=60), aside) == []


def test_a_group_that_takes_too_many_steps_is_set_aside_even_where_it_is_new() -> None:
    options = replace(OPTIONS, budget=replace(DEFAULT, steps=100))
    many = records([metadata_record({"group_id": "busy"}, epoch) for epoch in range(2, 400)])
    folded = by_id(fold([*many, *records(group("good"), first=900)], options=options))
    assert folded["good"]["set_aside_reason"] is None
    assert folded["busy"]["state"] == "Unknown"
    assert folded["busy"]["set_aside_reason"] == "it takes more than 100 steps to fold its records of one batch"


def test_a_group_with_too_many_members_is_set_aside_with_their_number_and_its_row_stays() -> None:
    options = replace(OPTIONS, budget=replace(DEFAULT, members=3))
    before = fold(records(group("large", members="ab")), options=options)
    later = records([*group("large", 3, "abcde"), *group("good", members="abc")], first=60, second=9)
    whole = fold_all(later, before, options=options)
    folded = by_id(whole["groups"])
    assert (folded["good"]["member_count"], folded["good"]["set_aside_reason"]) == (3, None)
    large = folded["large"]
    assert (large["group_epoch"], large["member_count"]) == (2, 2)  # as it was
    assert {one["group_id"] for one in whole[EVENTS]} == {"good"}
    assert large["set_aside_reason"] == "it has 5 members, where `group_budget.members` allows 3"


def test_records_that_cannot_be_folded_are_not_folded_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps grow with the number of records, and not with its square."""

    def steps_of(pairs: int) -> int:
        added: list[int] = []
        monkeypatch.setattr(Fold, "add", lambda self, some: added.append(1) or add(self, _counted(some, added)))
        log = [*group("g", members=[f"m{number}" for number in range(50)])]
        for epoch in range(3, 3 + pairs):
            log += [metadata_record({"group_id": "g"}, epoch), assigned("g", epoch, TOO_LATE)]
        assert fold_all(records(log))["counts"][QUARANTINE] == pairs
        return len(added)

    add = Fold.add
    once, twice = steps_of(100), steps_of(200)
    assert twice <= 2.2 * once


def _counted(records_: Iterable[Any], added: list[int]) -> Iterable[Any]:
    for one in records_:
        added.append(1)
        yield one


def test_undecodable_records_go_out_by_bytes() -> None:
    large = [(encode(17, {"group_id": "g"}, None)[0], b"\x09" + bytes(900_000)) for _ in range(30)]
    batches = fold_stream(sort_for_fold(pa.Table.from_pylist(records(large), RAW), None).to_batches(), OPTIONS)
    counts = [one.counts[QUARANTINE] for one in batches]
    assert sum(counts) == 30
    assert max(counts) <= 10

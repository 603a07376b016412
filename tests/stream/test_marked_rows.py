"""Groups whose rows no longer count: their records replace them, and what compaction took from the log stays known."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streaming_app.groups.budget import DEFAULT
from streaming_app.groups.marked_rows import marked
from tests.stream.test_fold_stage import OPTIONS, START, by_id, fold, group, let_rows_be_too_large, records
from tests.support.encode import encode
from tests.support.encoded import metadata_record

KNOWN = {"unsolicited_pushes": 3, "last_unsolicited_push_at": START + timedelta(seconds=2)}
OLD = START - timedelta(days=90)
AS_COMPACTED = [*group("g", 5)[:2]]
NEWEST = [metadata_record({"group_id": "g"}, 5, validated_topology_epoch=0)]
"""The members and the topology, and later record 17 alone, as compaction leaves them."""


def compacted() -> list[dict[str, Any]]:
    return [*records(AS_COMPACTED, second=3), *records(NEWEST, first=7, second=4)]


def known(newest: int = 2, **changes: Any) -> dict[str, Any]:
    """Return a row that counts no longer; `newest` is the offset of the last record that it was made of."""
    (row,) = fold(records(group("g", 5)))
    step = {**row["topology_epochs"][0], "first_seen_at": OLD}
    times = {"first_seen_at": OLD, "state_since": OLD, "description_since": OLD, "topology_epochs": [step]}
    return {**row, "last_offset": marked(newest), **KNOWN, **times, **changes}


def read_again(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    (row,) = fold(rows, [known(**changes)])
    return row


def test_what_compaction_took_from_the_log_is_taken_from_the_row_and_nothing_else() -> None:
    fresh = by_id(fold(compacted()))["g"]
    assert (fresh["first_seen_at"], fresh["unsolicited_pushes"]) == (None, 0)
    row = read_again(compacted(), members=[], member_count=77, state="Empty")
    kept = {"first_seen_at": OLD, **KNOWN}
    assert {name: row[name] for name in kept} == kept
    ignored = {*kept, "topology_epochs", "description_since"}
    assert {name: row[name] for name in row if name not in ignored} == {
        name: fresh[name] for name in fresh if name not in ignored
    }


def test_since_when_a_state_holds_is_kept_if_it_is_the_same() -> None:
    fresh = by_id(fold(compacted()))["g"]
    row = read_again(compacted(), state=fresh["state"])
    assert row["state_since"] == (fresh["state_since"] or OLD)
    assert row["topology_epochs"][0]["first_seen_at"] == (fresh["topology_epochs"][0]["first_seen_at"] or OLD)


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        pytest.param(records(group("g", 5), second=4), {}, id="its creation is in the log"),
        pytest.param(compacted(), {"group_epoch": 77}, id="another group had the id"),
        pytest.param(compacted(), {"deleted_at": START}, id="it was deleted"),
        pytest.param(compacted(), {"group_epoch": None, "metadata_at": None}, id="its record 17 had not been read"),
    ],
)
def test_a_row_that_proves_nothing_of_this_group_is_forgotten(
    rows: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    assert read_again(rows, **changes) == by_id(fold(rows))["g"]


def test_pushes_whose_records_are_still_to_be_read_are_not_counted_before() -> None:
    assert read_again(compacted(), newest=8)["unsolicited_pushes"] == 0


def test_what_a_row_proves_does_not_depend_on_the_clocks_of_coordinators() -> None:
    """The newest record 17 of the row was written by one whose clock is a day ahead."""
    ahead = START + timedelta(days=1)
    row = read_again(compacted(), metadata_at=ahead, updated_at=ahead, last_unsolicited_push_at=ahead)
    assert (row["known_before"], row["unsolicited_pushes"], row["last_unsolicited_push_at"]) == (None, 3, ahead)


def test_since_when_a_state_holds_is_kept_where_a_batch_ends_within_the_operation_of_the_newest_record_17() -> None:
    """As of record 17 alone the state is another one."""
    current = encode(22, {"group_id": "g", "member_id": "m"}, {"member_epoch": 5, "state": 1})
    epoch = encode(20, {"group_id": "g"}, {"assignment_epoch": 5})
    rows = [*records(AS_COMPACTED, second=3), *records([*NEWEST, epoch, current], first=7, second=4)]
    (whole,) = fold(rows)
    before = {"newest": 9, "state": whole["state"], "metadata_at": START + timedelta(seconds=4)}
    (first,) = fold(rows[:3], [known(**before)])
    assert (whole["state"], whole["state_since"], first["state"]) == ("Stable", None, "Assigning")
    (second,) = fold(rows[3:], [first])
    assert (second["state"], second["state_since"], second["known_before"]) == ("Stable", OLD, None)


TWICE = [
    *records([AS_COMPACTED[1]]),
    *records([metadata_record({"group_id": "g"}, 4, validated_topology_epoch=0), AS_COMPACTED[0]], first=1, second=2),
    *records(NEWEST, first=3, second=3),
    *records([encode(22, {"group_id": "g", "member_id": "m"}, {"member_epoch": 1})], first=4, second=4),
]
"""With another record 17, which is older than the row."""


@pytest.mark.parametrize("cut", range(1, 5))
@pytest.mark.parametrize("rows", [compacted(), TWICE], ids=["compacted", "two records 17"])
def test_what_the_row_proves_is_kept_wherever_batches_end(rows: list[dict[str, Any]], cut: int) -> None:
    times = {"validated_at": OLD, "description_stored_at": None, "description_failed_at": OLD}
    step = {"topology_epoch": 0, "first_seen_at": OLD, **times, "description_stored": False}
    row = {"topology_epochs": [step], "state": "Assigning", "newest": 3}
    whole = read_again(rows, **row)
    (first,) = fold(rows[:cut], [known(**row)])
    (second,) = fold(rows[cut:], [first]) or [first]
    if first["known_before"]:  # the reading begins again
        (again,) = fold(rows, [{**first, "last_offset": marked(first["last_offset"])}])
        assert again == {**whole, "known_before": None}
    names = {"first_seen_at", "state_since", "description_since", "topology_epochs", *KNOWN, "state", "known_before"}
    assert {name: second[name] for name in names} == {name: whole[name] for name in names}
    assert (second["known_before"], second["first_seen_at"], second["unsolicited_pushes"]) == (None, OLD, 3)
    assert (second["topology_epochs"][0]["description_failed_at"], whole["state_since"]) == (OLD, OLD)


def test_a_marked_row_stays_where_arrow_cannot_hold_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [known()]
    let_rows_be_too_large(monkeypatch, "g")
    (row,) = fold(compacted(), before)
    assert (row["group_epoch"], row["last_offset"], row["first_seen_at"]) == (5, 7, OLD)
    assert row["set_aside_reason"].startswith("ArrowInvalid: ")


def test_a_group_that_was_set_aside_is_folded_again_and_set_aside_for_good_if_that_fails() -> None:
    aside = {"set_aside_reason": "why", "set_aside_release": "0.1.0", "set_aside_at": START}
    assert read_again(compacted(), **aside)["set_aside_reason"] is None
    options = replace(OPTIONS, budget=replace(DEFAULT, steps=1))
    (row,) = fold(compacted(), [known(**aside)], options)
    assert row["set_aside_release"] == OPTIONS.release
    assert fold(records(NEWEST, first=9, second=9), [row]) == []

"""Logs that brokers of four releases wrote, folded, against what those brokers said of the groups at the end."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from streaming_app.verify.compare import GROUP_ID_NOT_FOUND, differences, tells_state
from tests.history.log import Folded, Raw
from tests.recorded.record import VERSIONS, read

_HERE = Path(__file__).parent
_OF_4_1 = "4.1.2"  # keeps in memory whether a group is ready, so the log does not tell its state


def folded(records: list[Raw], cuts: Random | None = None) -> Folded:
    """The log in one batch, or in batches of one record to many."""
    made = Folded()
    while records:
        size = cuts.choice((1, 1, 2, 3, 10, 40)) if cuts else len(records)
        made.add(records[:size])
        records = records[size:]
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tables_say_what_the_broker_said(version: str) -> None:
    records, described = read(_HERE / f"{version}.jsonl.gz")
    rows = folded(records).rows
    assert [
        str(one) for told in described for one in differences(told["group_id"], rows.get(told["group_id"]), told)
    ] == []
    assert {told["group_id"] for told in described} == rows.keys()
    living = [told for told in described if told["error_code"] != GROUP_ID_NOT_FOUND]
    assert len(living) >= 8
    assert sum(len(told["members"]) for told in living) >= 10
    stateless = {told["group_id"] for told in living if not tells_state(rows[told["group_id"]])}
    with_members = {told["group_id"] for told in living if told["members"]}
    assert stateless == (with_members if version == _OF_4_1 else set())


def test_a_4_1_log_does_not_tell_the_state_of_groups_with_members() -> None:
    records, described = read(_HERE / f"{_OF_4_1}.jsonl.gz")
    rows = folded(records).rows
    told = {one["group_id"]: one["group_state"] for one in described if one["error_code"] != GROUP_ID_NOT_FOUND}
    assert set(told.values()) == {"NotReady", "Reconciling", "Stable", "Empty"}
    assert {rows[group_id]["state"] for group_id, state in told.items() if state != "Empty"} == {"Unknown"}
    assert {rows[group_id]["state"] for group_id, state in told.items() if state == "Empty"} == {"Empty"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_where_the_log_is_cut_into_batches_changes_neither_rows_nor_events(version: str, seed: int) -> None:
    records, _ = read(_HERE / f"{version}.jsonl.gz")
    whole, cut = folded(records), folded(records, Random(seed))  # noqa: S311 - no secret
    assert {group_id: unordered(row) for group_id, row in cut.rows.items()} == {
        group_id: unordered(row) for group_id, row in whole.rows.items()
    }
    for group_id, events in whole.events.items():
        assert sorted(map(str, cut.events[group_id])) == sorted(map(str, events))


@pytest.mark.parametrize("version", VERSIONS)
def test_reading_a_log_again_changes_nothing(version: str) -> None:
    records, _ = read(_HERE / f"{version}.jsonl.gz")
    made = folded(records)
    rows, events = dict(made.rows), {group_id: list(of) for group_id, of in made.events.items()}
    made.add(records)
    assert (made.rows, made.events) == (rows, events)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(3))
def test_a_compacted_log_gives_the_same_answers(version: str, seed: int) -> None:
    """Of every key only the newest record, any tombstone perhaps gone."""
    records, described = read(_HERE / f"{version}.jsonl.gz")
    newest = {raw.key: raw for raw in records}
    random = Random(seed)  # noqa: S311 - no secret
    kept = [raw for raw in records if newest[raw.key] is raw and (raw.value is not None or random.random() < seed / 2)]
    assert len(kept) < len(records)
    rows = folded(kept, random).rows
    assert [
        str(one) for told in described for one in differences(told["group_id"], rows.get(told["group_id"]), told)
    ] == []


def unordered(row: dict[str, Any]) -> dict[str, Any]:
    """Members, tasks and changes have no order."""
    return {name: sorted(value, key=str) if isinstance(value, list) else value for name, value in row.items()}

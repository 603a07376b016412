"""The folded log of a real application with the classic protocol, compared with what the application said."""

from collections import Counter
from datetime import datetime, timezone
from random import Random
from typing import Any

import pytest

from streaming_app.stream.batch_rows import EVENTS, RETRACTED
from tests.recorded.record import read
from tests.recorded.record_classic import FILE
from tests.stream.test_fold_stage import fold_all
from tests.support.classic_application import threads_of_row
from tests.support.offsets_log import RawRecord, sort_list

Event = tuple[str, str]
"""Its kind, and all of it."""
RECORDS, SAID = read(FILE)


def fold(records: list[RawRecord], random: Random | None = None) -> tuple[dict[str, Any], Counter[Event]]:
    """Return the row and the events after one batch, or with `random` after batches of different sizes."""
    rows: list[dict[str, Any]] = []
    events = Counter[Event]()
    while records:
        size = random.choice((1, 1, 2, 3)) if random else len(records)
        found = fold_all([_raw(one) for one in records[:size]], rows)
        records, rows = records[size:], found["groups"] or rows
        events.update(map(_printed, found[EVENTS]))
        events.subtract(map(_printed, found[RETRACTED]))
    return rows[0], +events


def _raw(record: RawRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.timestamp_ms / 1000, timezone.utc)
    own = {name: getattr(record, name) for name in ("partition", "offset", "key", "value")}
    return {**own, "group_bytes": record.group_id.encode(), "timestamp": at}


def _printed(event: dict[str, Any]) -> Event:
    return event["kind"], str(sorted(event.items()))


def test_the_threads_and_tasks_of_the_row_are_what_the_application_said() -> None:
    row, events = fold(RECORDS)
    said = {one["name"]: (one["process_id"], one["active"], one["standby"]) for one in SAID}
    assert threads_of_row(row) == said
    assert (len(said), row["undecoded_members"], row["tasks_moving"]) == (4, 0, False)
    kinds = Counter(kind for kind, _ in events.elements())
    assert (kinds["member_joined"], kinds["member_left"]) == (8, 4)  # two were killed, and two were stopped


@pytest.mark.parametrize("seed", range(5))
def test_how_the_log_is_split_into_batches_changes_neither_rows_nor_events(seed: int) -> None:
    (whole, events), (split, split_events) = fold(RECORDS), fold(RECORDS, Random(seed))  # noqa: S311 - no secret
    assert {name: sort_list(value) for name, value in split.items()} == {
        name: sort_list(value) for name, value in whole.items()
    }
    assert split_events == events


def test_the_newest_record_alone_has_the_threads_tasks_and_topics() -> None:
    (whole, _), (compacted, _) = fold(RECORDS), fold(RECORDS[-1:])
    assert threads_of_row(compacted) == threads_of_row(whole)
    for name in ("state", "group_epoch", "subtopologies"):
        assert compacted[name] == whole[name]
    assert {one["joined_at"] for one in compacted["members"]} == {None}

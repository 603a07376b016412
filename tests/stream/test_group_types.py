from __future__ import annotations

import pytest

from streaming_app.stream.commits_batch import MetadataRecord, type_changes

CLASSIC, CONSUMER, SHARE, STREAMS = 2, 3, 11, 17


def value(offset: int, record_type: int) -> MetadataRecord:
    return MetadataRecord(offset, record_type, deleted=False, recorded_at=offset)


def tombstone(offset: int, record_type: int) -> MetadataRecord:
    return MetadataRecord(offset, record_type, deleted=True, recorded_at=offset)


CASES = {
    "a new group": ([], [value(1, STREAMS)], []),
    "the same type again": ([value(1, STREAMS)], [value(2, STREAMS)], []),
    "classic to streams": (
        [value(1, CLASSIC)],
        [tombstone(2, CLASSIC), value(3, STREAMS)],
        [(2, "classic", "streams")],
    ),
    "streams to classic": (
        [value(1, STREAMS)],
        [tombstone(2, STREAMS), value(3, CLASSIC)],
        [(2, "streams", "classic")],
    ),
    "classic to consumer": (
        [value(1, CLASSIC)],
        [tombstone(2, CLASSIC), value(3, CONSUMER)],
        [(2, "classic", "consumer")],
    ),
    "consumer to classic": (
        [value(1, CONSUMER)],
        [tombstone(2, CONSUMER), value(3, CLASSIC)],
        [(2, "consumer", "classic")],
    ),
    "the batch ends between the two": (
        [value(1, CLASSIC), tombstone(2, CLASSIC)],
        [value(3, STREAMS)],
        [(2, "classic", "streams")],
    ),
    "only the last record of the new type is seen": (
        [],
        [tombstone(2, CLASSIC), value(900, STREAMS)],
        [(2, "classic", "streams")],
    ),
    "an empty group that the coordinator dropped without a record": (
        [value(1, STREAMS)],
        [value(2, CLASSIC)],
        [(2, "streams", "classic")],
    ),
    "there and back": (
        [value(1, CLASSIC)],
        [tombstone(4, STREAMS), value(5, CLASSIC)],
        [(4, "streams", "classic")],
    ),
    "deleted": ([value(1, SHARE)], [tombstone(2, SHARE)], []),
    "a batch that is repeated": (
        [value(1, CLASSIC), value(3, STREAMS)],
        [tombstone(2, CLASSIC), value(3, STREAMS)],
        [],
    ),
}


@pytest.mark.parametrize(("known", "new", "expected"), CASES.values(), ids=CASES)
def test_changes_of_the_type(
    known: list[MetadataRecord], new: list[MetadataRecord], expected: list[tuple[int, str, str]]
) -> None:
    found = list(type_changes(known, new))
    assert [(one.offset, one.old, one.new) for one in found] == expected
    assert [one.at for one in found] == [offset for offset, _, _ in expected]

from typing import Any

import pytest

from streaming_app.stream.commits_writer import type_changes

CLASSIC, CONSUMER, SHARE, STREAMS = 2, 3, 11, 17


def records(*numbered: tuple[int, int]) -> list[dict[str, Any]]:
    """Return records by offset and type; a tombstone has a negative type."""
    return [
        {"last_offset": offset, "record_type": abs(kind), "deleted": kind < 0, "recorded_at": offset}
        for offset, kind in numbered
    ]


@pytest.mark.parametrize(
    ("known", "new", "expected"),
    [
        ([], [(1, STREAMS)], []),
        ([(1, STREAMS)], [(2, STREAMS)], []),
        ([(1, CLASSIC)], [(2, -CLASSIC), (3, STREAMS)], [(2, "classic", "streams")]),
        ([(1, STREAMS)], [(2, -STREAMS), (3, CLASSIC)], [(2, "streams", "classic")]),
        ([(1, CLASSIC)], [(2, -CLASSIC), (3, CONSUMER)], [(2, "classic", "consumer")]),
        ([(1, CLASSIC), (2, -CLASSIC)], [(3, STREAMS)], [(2, "classic", "streams")]),
        ([], [(2, -CLASSIC), (900, STREAMS)], [(2, "classic", "streams")]),
        ([(1, STREAMS)], [(2, CLASSIC)], [(2, "streams", "classic")]),
        ([(1, CLASSIC)], [(4, -STREAMS), (5, CLASSIC)], [(4, "streams", "classic")]),
        ([(1, SHARE)], [(2, -SHARE)], []),
        ([(1, CLASSIC), (3, STREAMS)], [(2, -CLASSIC), (3, STREAMS)], []),
    ],
    ids=[
        "a new group",
        "the same type again",
        "classic to streams",
        "streams to classic",
        "classic to consumer",
        "the batch ends between the two",
        "only the last record of the new type is seen",
        "an empty group that the coordinator dropped without a record",
        "there and back",
        "deleted",
        "a batch that is repeated",
    ],
)
def test_changes_of_the_type(
    known: list[tuple[int, int]], new: list[tuple[int, int]], expected: list[tuple[int, str, str]]
) -> None:
    found = list(type_changes(records(*known), records(*new)))
    assert found == [{"offset": offset, "at": offset, "old": old, "new": now} for offset, old, now in expected]

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


CHANGES: dict[str, tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, str, str]]]] = {
    "a new group": ([], [(1, STREAMS)], []),
    "the same type again": ([(1, STREAMS)], [(2, STREAMS)], []),
    "classic to streams": ([(1, CLASSIC)], [(2, -CLASSIC), (3, STREAMS)], [(2, "classic", "streams")]),
    "streams to classic": ([(1, STREAMS)], [(2, -STREAMS), (3, CLASSIC)], [(2, "streams", "classic")]),
    "classic to consumer": ([(1, CLASSIC)], [(2, -CLASSIC), (3, CONSUMER)], [(2, "classic", "consumer")]),
    "the batch ends between the two": ([(1, CLASSIC), (2, -CLASSIC)], [(3, STREAMS)], [(2, "classic", "streams")]),
    "only the last record of the new type is seen": ([], [(2, -CLASSIC), (900, STREAMS)], [(2, "classic", "streams")]),
    "an empty group that the coordinator dropped": ([(1, STREAMS)], [(2, CLASSIC)], [(2, "streams", "classic")]),
    "there and back": ([(1, CLASSIC)], [(4, -STREAMS), (5, CLASSIC)], [(4, "streams", "classic")]),
    "deleted": ([(1, SHARE)], [(2, -SHARE)], []),
    "a batch that is repeated": ([(1, CLASSIC), (3, STREAMS)], [(2, -CLASSIC), (3, STREAMS)], []),
}
"""Records that are known, and new ones, and the changes that these prove."""


@pytest.mark.parametrize(("known", "new", "expected"), CHANGES.values(), ids=CHANGES)
def test_changes_of_the_type(
    known: list[tuple[int, int]], new: list[tuple[int, int]], expected: list[tuple[int, str, str]]
) -> None:
    found = list(type_changes(records(*known), records(*new)))
    assert found == [{"offset": offset, "at": offset, "old": old, "new": now} for offset, old, now in expected]

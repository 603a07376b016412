"""What Kafka Streams commits with an offset, and what others may."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.lag.partition_time import LAST_MS, partition_time_ms

TIMES = st.integers(0, LAST_MS)
KEYS = st.dictionaries(st.text(max_size=20), st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=5)


def encoded(magic: int, time: int, more: bytes = b"") -> str:
    return base64.b64encode(struct.pack(">Bq", magic, time) + more).decode()


def processor_metadata(values: dict[str, int]) -> bytes:
    found = struct.pack(">i", len(values))
    for key, value in values.items():
        name = key.encode()
        found += struct.pack(">i", len(name)) + name + struct.pack(">q", value)
    return found


def test_what_a_real_application_commits() -> None:
    assert partition_time_ms("AgAAAaIX6JFf") == 0x01A217E8915F


@given(TIMES, st.sampled_from([1, 2]))
def test_the_time_of_both_magic_bytes(time: int, magic: int) -> None:
    assert partition_time_ms(encoded(magic, time)) == time


@given(TIMES, KEYS)
def test_the_time_before_the_metadata_of_processors(time: int, values: dict[str, int]) -> None:
    more = processor_metadata(values)
    assert partition_time_ms(encoded(2, time, more)) == time
    assert partition_time_ms(encoded(1, time, more)) is None  # a magic byte 1 has none
    assert partition_time_ms(encoded(2, time, more[:-1])) is None
    assert partition_time_ms(encoded(2, time, more + b"\0")) is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "AgAAAaIX6JF",
        "AgAAAaIX6JF=",
        "AgAAAaIX6JFf\n",
        "AgAA\u00e9aIX6JFf",
        "AgAA\ud800aIX6JFf",
        encoded(0, 1_764_000_000_000),
        encoded(3, 1_764_000_000_000),
        encoded(2, -1),
        encoded(2, LAST_MS + 1),
        encoded(2, 1, struct.pack(">i", -1)),
        encoded(2, 1, struct.pack(">i", 0x7FFFFFFF)),
        encoded(2, 1, struct.pack(">iiq", 1, -8, 0)),
        encoded(2, 1, struct.pack(">ii", 1, 0x7FFFFFFF)),
    ],
)
def test_of_anything_else_the_time_is_not_known(text: str | None) -> None:
    assert partition_time_ms(text) is None


@given(st.one_of(st.text(), st.text("AQAgw=+/").map("AgAA".__add__), st.binary().map(lambda one: encoded(2, 5, one))))
def test_no_text_is_an_error_and_no_time_is_one_that_cannot_be_shown(text: str) -> None:
    found = partition_time_ms(text)
    assert found is None or 0 <= found <= LAST_MS

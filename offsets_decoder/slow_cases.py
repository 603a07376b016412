"""What generated readers call for the cases that are rare: long varints, nulls, unknown tags. See `generator`.

All take the buffer and a position and give back a value and the position after it. None of them checks that a slice
was whole: a position past the end makes the next read, or the check at the end, fail.
"""

from __future__ import annotations

from binascii import b2a_base64
from struct import Struct
from typing import TYPE_CHECKING, Any

from offsets_decoder.record import UnknownTag
from offsets_decoder.scalars import BIGGEST_UVARINT, MAX_STRING

if TYPE_CHECKING:
    from collections.abc import Callable

SMALL = 0x7F  # the longest varint of one byte
_UVARINT_BYTES = 5
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Refused(ValueError):  # noqa: N818 - never seen outside: the referee says what is wrong
    """The fast path does not read this."""


def uvarint(buf: bytes, p: int) -> tuple[int, int]:
    """Read an unsigned varint in its shortest form."""
    value = 0
    for i in range(_UVARINT_BYTES):
        byte = buf[p + i]
        value |= (byte & SMALL) << (7 * i)
        if byte <= SMALL:
            if (i and not byte) or value > BIGGEST_UVARINT:
                break
            return value, p + i + 1
    raise Refused


def sized(buf: bytes, p: int) -> tuple[int, int]:
    """Read a compact length that may not be null."""
    value, p = uvarint(buf, p)
    if not value:
        raise Refused
    return value, p


def text(buf: bytes, p: int) -> tuple[str, int]:
    """Read a compact string."""
    length, p = sized(buf, p)
    if length > MAX_STRING + 1:
        raise Refused
    end = p + length - 1
    return buf[p:end].decode(), end


def nullable_text(buf: bytes, p: int) -> tuple[str | None, int]:
    """Read a compact string or null."""
    return text(buf, p) if buf[p] else (None, p + 1)


def blob(buf: bytes, p: int) -> tuple[bytes, int]:
    """Read compact bytes."""
    length, p = sized(buf, p)
    end = p + length - 1
    return bytes(buf[p:end]), end


def nullable_blob(buf: bytes, p: int) -> tuple[bytes | None, int]:
    """Read compact bytes or null."""
    return blob(buf, p) if buf[p] else (None, p + 1)


def old_length(buf: bytes, p: int, size: int) -> tuple[int, int]:
    """Read a length of 2 or 4 bytes, of before flexible versions; -1 is null."""
    length = int.from_bytes(buf[p : p + size], "big", signed=True)
    if length < -1 or p + size > len(buf):
        raise Refused
    return length, p + size


def old_nullable_text(buf: bytes, p: int) -> tuple[str | None, int]:
    """Read a string behind two bytes of length, or null."""
    length, p = old_length(buf, p, 2)
    return (None, p) if length < 0 else (buf[p : p + length].decode(), p + length)


def old_blob(buf: bytes, p: int) -> tuple[bytes, int]:
    """Read bytes behind four bytes of length."""
    data, p = old_nullable_blob(buf, p)
    if data is None:
        raise Refused
    return data, p


def old_nullable_blob(buf: bytes, p: int) -> tuple[bytes | None, int]:
    """Read bytes behind four bytes of length, or null."""
    length, p = old_length(buf, p, 4)
    return (None, p) if length < 0 else (bytes(buf[p : p + length]), p + length)


def old_count(buf: bytes, p: int) -> tuple[int, int]:
    """Read the count of an array behind four bytes, plus one as `sized` has it."""
    count, p = old_nullable_count(buf, p)
    if not count:
        raise Refused
    return count, p


def old_nullable_count(buf: bytes, p: int) -> tuple[int, int]:
    """Read the count of an array or null behind four bytes, plus one: 0 is null."""
    count, p = old_length(buf, p, 4)
    return count + 1, p


def present(byte: int, absent: int) -> bool:
    """Tell whether a struct that may be null is there."""
    if byte not in {1, absent}:
        raise Refused
    return byte == 1


def uuid(data: bytes) -> str:
    """Print sixteen bytes as Kafka prints a uuid."""
    return b2a_base64(data, newline=False)[:22].translate(_URL_SAFE).decode()


def many(buf: bytes, p: int, code: str) -> tuple[list[int], int]:
    """Read a compact array of numbers; `code` is struct's."""
    length, p = sized(buf, p)
    numbers = Struct(f">{length - 1}{code}")
    if p + numbers.size > len(buf):
        raise Refused
    return list(numbers.unpack_from(buf, p)), p + numbers.size


def nullable_many(buf: bytes, p: int, code: str) -> tuple[list[int] | None, int]:
    """Read a compact array of numbers or null."""
    return many(buf, p, code) if buf[p] else (None, p + 1)


def unpackers(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """Make readers of arrays of numbers, by their compact length of one byte: item n reads n - 1 of them."""
    return [Struct(f">{max(0, n - 1)}{code}").unpack_from for n in range(SMALL + 1)]


def tag_head(buf: bytes, p: int, last: int) -> tuple[int, int, int]:
    """Read a tag above `last` and its size; gives the tag, where its data begins and where they end."""
    tag = buf[p]
    p += 1
    if tag > SMALL:
        tag, p = uvarint(buf, p - 1)
    size = buf[p]
    p += 1
    if size > SMALL:
        high = buf[p]
        if 0 < high <= SMALL:  # two bytes, as the epochs of 32 to 4,000 tasks take
            size = high << 7 | size & SMALL
            p += 1
        else:
            size, p = uvarint(buf, p - 1)
    if tag <= last:
        raise Refused
    return tag, p, p + size


def unknown_tags(buf: bytes, p: int, unknown: list[UnknownTag], path: str) -> int:
    """Keep a section of tags of which none is known; gives the position after it."""
    count, p = uvarint(buf, p)
    tag = -1
    for _ in range(count):
        tag, p, end = tag_head(buf, p, tag)
        unknown.append(UnknownTag(path, tag, bytes(buf[p:end])))
        p = end
    return p

"""The functions that generated readers call in rare cases: long varints, nulls, unknown tags. See `generator`.

The functions are named after Kafka's types. They take the buffer and a position, and return a value and the position
after it. They do not check that a slice is complete: if the position is past the end, the next read fails, or the check
at the end.
"""

from binascii import b2a_base64
from collections.abc import Callable
from struct import Struct
from typing import Any

from offsets_decoder.java_text import decode_chars, decode_utf
from offsets_decoder.layout import MAX_STRING, MAX_UVARINT
from offsets_decoder.record import UnknownTag

ONE_BYTE = 0x7F  # the largest varint of one byte
_UVARINT_BYTES = 5
_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Rejected(ValueError):  # noqa: N818 - internal: the reference decoder then finds the error to report
    """The fast path does not read these bytes."""


def uvarint(buf: bytes, p: int) -> tuple[int, int]:
    """Read an unsigned varint in its shortest form."""
    value = 0
    for i in range(_UVARINT_BYTES):
        byte = buf[p + i]
        value |= (byte & ONE_BYTE) << (7 * i)
        if byte <= ONE_BYTE:
            if (i and not byte) or value > MAX_UVARINT:
                break
            return value, p + i + 1
    raise Rejected


def compact_length(buf: bytes, p: int) -> tuple[int, int]:
    """Read the length of a compact type; return length + 1, as it is encoded. It may not be null."""
    value, p = uvarint(buf, p)
    if not value:
        raise Rejected
    return value, p


def compact_string(buf: bytes, p: int) -> tuple[str, int]:
    """Read a compact string."""
    length, p = compact_length(buf, p)
    if length > MAX_STRING + 1:
        raise Rejected
    end = p + length - 1
    return buf[p:end].decode(), end


def compact_bytes(buf: bytes, p: int) -> tuple[bytes, int]:
    """Read compact bytes."""
    length, p = compact_length(buf, p)
    end = p + length - 1
    return bytes(buf[p:end]), end


def fixed_length(buf: bytes, p: int, size: int, nullable: bool) -> tuple[int, int]:  # noqa: FBT001 - generated calls
    """Read a length of 2 or 4 bytes, for versions that are not flexible; return length + 1; 0 is null."""
    length = int.from_bytes(buf[p : p + size], "big", signed=True) + 1
    if length < (not nullable) or p + size > len(buf):
        raise Rejected
    return length, p + size


def fixed_string(buf: bytes, p: int, nullable: bool) -> tuple[str | None, int]:  # noqa: FBT001 - as above
    """Read a string with a length of two bytes."""
    length, p = fixed_length(buf, p, 2, nullable)
    end = p + length - 1
    return (buf[p:end].decode(), end) if length else (None, p)


def fixed_bytes(buf: bytes, p: int, nullable: bool) -> tuple[bytes | None, int]:  # noqa: FBT001 - as above
    """Read bytes with a length of four bytes."""
    length, p = fixed_length(buf, p, 4, nullable)
    end = p + length - 1
    return (bytes(buf[p:end]), end) if length else (None, p)


def fixed_utf(buf: bytes, p: int, nullable: bool) -> tuple[str, int]:  # noqa: FBT001, ARG001 - as above
    """Read what Java's `writeUTF` writes."""
    end = p + 2 + (buf[p] << 8 | buf[p + 1])
    return decode_utf(buf[p + 2 : end]), end


def fixed_chars(buf: bytes, p: int, nullable: bool) -> tuple[str, int]:  # noqa: FBT001 - as above
    """Read what Java's `writeChars` writes, after the number of characters."""
    length, p = fixed_length(buf, p, 4, nullable)
    end = p + 2 * (length - 1)
    return decode_chars(buf[p:end]) if length > 1 else "", end


def is_present(byte: int, null: int) -> bool:
    """Return whether a nullable struct is present, from the byte before it."""
    if byte not in {1, null}:
        raise Rejected
    return byte == 1


def uuid(data: bytes) -> str:
    """Return sixteen bytes in Kafka's text form of a uuid."""
    return b2a_base64(data, newline=False)[:22].translate(_URL_SAFE).decode()


def compact_numbers(buf: bytes, p: int, code: str) -> tuple[list[int], int]:
    """Read a compact array of numbers; `code` is their `struct` format code."""
    length, p = compact_length(buf, p)
    numbers = Struct(f">{length - 1}{code}")
    if p + numbers.size > len(buf):
        raise Rejected
    return list(numbers.unpack_from(buf, p)), p + numbers.size


def number_unpackers(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """Return `unpack_from` functions for arrays of numbers, by their compact length: item n reads n - 1 numbers."""
    return [Struct(f">{max(0, n - 1)}{code}").unpack_from for n in range(ONE_BYTE + 1)]


def tag_header(buf: bytes, p: int, previous: int) -> tuple[int, int, int]:
    """Read a tag greater than `previous` and its size; return the tag, and where its data starts and ends."""
    tag = buf[p]
    p += 1
    if tag > ONE_BYTE:
        tag, p = uvarint(buf, p - 1)
    size = buf[p]
    p += 1
    if size > ONE_BYTE:
        high = buf[p]
        if 0 < high <= ONE_BYTE:  # two bytes, for example for the epochs of 32 to 4,000 tasks
            size = high << 7 | size & ONE_BYTE
            p += 1
        else:
            size, p = uvarint(buf, p - 1)
    if tag <= previous:
        raise Rejected
    return tag, p, p + size


def unknown_tags(buf: bytes, p: int, unknown: list[UnknownTag], path: str) -> int:
    """Append tagged fields, all of them unknown, to `unknown`; return the position after them."""
    count, p = uvarint(buf, p)
    tag = -1
    for _ in range(count):
        tag, p, end = tag_header(buf, p, tag)
        unknown.append(UnknownTag(path, tag, bytes(buf[p:end])))
        p = end
    return p

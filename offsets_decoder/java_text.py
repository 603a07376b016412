"""Text as Java's `DataOutputStream` writes it, in the two forms that Kafka Streams uses. See `AssignmentInfo`.

Both forms encode the UTF-16 characters of a Java string, which may be halves of surrogate pairs: each half is read as
U+FFFD, the replacement character, since no other program could store it.
"""

_FOUR_BYTES = 0xF0  # Java has no such sequences: it encodes the halves of a surrogate pair, three bytes each
_ZERO = b"\xc0\x80"


def decode_utf(data: bytes) -> str:
    """Return the text of `writeUTF`, modified UTF-8; raises UnicodeDecodeError for bytes that it does not write."""
    if data.isascii():
        return data.decode()
    text = data.replace(_ZERO, b"\0").decode("utf-8", "surrogatepass")
    if max(data) >= _FOUR_BYTES:
        raise UnicodeDecodeError("modified UTF-8", data, 0, len(data), "a sequence of four bytes")
    return decode_chars(encode_chars(text))


def decode_chars(data: bytes) -> str:
    """Return the text of `writeChars`, two bytes a character."""
    return data.decode("utf-16-be", "replace")


def encode_chars(text: str) -> bytes:
    """Return text as `writeChars` writes it."""
    return text.encode("utf-16-be", "surrogatepass")

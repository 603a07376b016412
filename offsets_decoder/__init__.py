"""Bytes of `__consumer_offsets` to records and back. No Spark and no I/O may live here.

`decode` is the fast path, generated from the definitions in `schemas/records/`; `reference_decode` uses Construct and
decides what is correct; `encode` builds bytes with the same Constructs. The last two import Construct when first
called. What this module exports is public; the modules of the package are private, and may change with any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offsets_decoder.decoder import decode
from offsets_decoder.errors import (
    DecodeError,
    EncodeError,
    MalformedRecord,
    UnknownDialectError,
    UnknownRecordType,
    UnknownValueVersion,
)
from offsets_decoder.json_form import error_json, to_json
from offsets_decoder.layout import SHIPPED, dialects
from offsets_decoder.lines import decode_lines
from offsets_decoder.record import Record, UnknownTag

if TYPE_CHECKING:
    from offsets_decoder.encoder import encode
    from offsets_decoder.reference import reference_decode

__all__ = [
    "SHIPPED",
    "DecodeError",
    "EncodeError",
    "MalformedRecord",
    "Record",
    "UnknownDialectError",
    "UnknownRecordType",
    "UnknownTag",
    "UnknownValueVersion",
    "decode",
    "decode_lines",
    "dialects",
    "encode",
    "error_json",
    "reference_decode",
    "to_json",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if name == "encode":
        from offsets_decoder.encoder import encode  # noqa: PLC0415 - Construct is slow to import

        return encode
    if name == "reference_decode":
        from offsets_decoder.reference import reference_decode  # noqa: PLC0415

        return reference_decode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

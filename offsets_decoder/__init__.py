"""Decodes and encodes the bytes of `__consumer_offsets` records. No Spark and no I/O may live here.

`decode` is the fast path, generated from the definitions in `schemas/records/`. `reference_decode` uses Construct, and
decides what is correct. `encode` builds bytes with the same Constructs. The last two import Construct when first
called. The names that this module exports are public; the modules of the package are private, and may change with any
release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offsets_decoder.decoder import decode
from offsets_decoder.json_form import decode_lines, error_json, to_json
from offsets_decoder.record import (
    DecodeError,
    EncodeError,
    MalformedRecord,
    Record,
    UnknownRecordType,
    UnknownTag,
    UnknownValueVersion,
)

if TYPE_CHECKING:
    from offsets_decoder.reference import encode, reference_decode

__all__ = [
    "DecodeError",
    "EncodeError",
    "MalformedRecord",
    "Record",
    "UnknownRecordType",
    "UnknownTag",
    "UnknownValueVersion",
    "decode",
    "decode_lines",
    "encode",
    "error_json",
    "reference_decode",
    "to_json",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if name in {"encode", "reference_decode"}:
        from offsets_decoder import reference  # noqa: PLC0415 - Construct is slow to import

        return getattr(reference, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Decodes the bytes of `__consumer_offsets` records. No Spark and no I/O may live here.

`decode` is the fast path, generated from the definitions in `schemas/records/`. `reference.reference_decode` uses
Construct, and decides what is correct. The names that this module exports are public; the modules of the package are
private, and may change with any release.
"""

from offsets_decoder.decoder import decode
from offsets_decoder.json_form import decode_lines, error_json, to_json
from offsets_decoder.record import (
    DecodeError,
    MalformedRecord,
    Record,
    UnknownRecordType,
    UnknownTag,
    UnknownValueVersion,
)

__all__ = [
    "DecodeError",
    "MalformedRecord",
    "Record",
    "UnknownRecordType",
    "UnknownTag",
    "UnknownValueVersion",
    "decode",
    "decode_lines",
    "error_json",
    "to_json",
]

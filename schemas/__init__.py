"""Definitions, as data: one file per record of `__consumer_offsets`, table or request, and the code that loads them."""

from schemas.definitions import Body, DefinitionError, Dialect, Field, RecordDefinition, Versions
from schemas.records_loader import record, records

__all__ = [
    "Body",
    "DefinitionError",
    "Dialect",
    "Field",
    "RecordDefinition",
    "Versions",
    "record",
    "records",
]

"""Data only: one file per record of `__consumer_offsets`, per table, per request, and functions to load them."""

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

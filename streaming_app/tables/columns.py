"""Adds the columns to a table that an earlier version of its definition did not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streaming_app.errors import StorageError
from streaming_app.tables.arrow import with_plain_types

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming_app.tables.location import Location
    from streaming_app.tables.rust_table import Commit, RustTable


class UnknownColumnError(Exception):
    """The table has a column that this release does not know, or knows with another type; the text names it."""


def lacks_columns(location: Location, table: DeltaTable, schema: pa.Schema) -> bool:
    """Return whether a table lacks columns of `schema`, or fields of its nested columns.

    Raises StorageError if the table has columns that are not in `schema`, or have another type there.
    """
    actual = with_plain_types(pa.schema(table.schema().to_arrow()).empty_table()).schema
    try:
        return _lacks_fields(pa.struct(list(actual)), pa.struct(list(schema)), "")
    except UnknownColumnError as error:
        raise StorageError(
            f"{location} has a column {error}: use the release that created it, or another --warehouse"
        ) from None


def add_columns(own: RustTable, schema: pa.Schema) -> None:
    """Add these columns, in one commit; they are null in existing rows. Raises as `RustTable.change`."""
    from deltalake import Field, Schema  # noqa: PLC0415 - Spark's workers import the callers without delta-rs

    def write(table: DeltaTable, commit: Commit) -> None:
        if lacks_columns(own.location, table, schema):  # another job may have added them
            known = {field.name for field in table.schema().fields}
            # an existing column gets only new fields; its comment in the table stays
            fields = Schema.from_arrow(schema).fields
            new = [Field(field.name, field.type) if field.name in known else field for field in fields]
            table.alter.add_columns(new, **commit)

    own.change(write)


def _lacks_fields(actual: pa.DataType, expected: pa.DataType, path: str) -> bool:
    """Return whether a type lacks fields of the expected one, at any depth.

    Raises UnknownColumnError if new fields alone cannot turn it into the expected type.
    """
    if pa.types.is_struct(actual) and pa.types.is_struct(expected):
        known = {field.name: field.type for field in actual}
        if unknown := sorted(known.keys() - {field.name for field in expected}):
            raise UnknownColumnError(f"{_join(path, unknown[0])} that this release does not know")
        found = [
            field.name not in known or _lacks_fields(known[field.name], field.type, _join(path, field.name))
            for field in expected
        ]
        return any(found)
    if pa.types.is_list(actual) and pa.types.is_list(expected):
        return _lacks_fields(actual.value_type, expected.value_type, _join(path, "element"))
    if pa.types.is_map(actual) and pa.types.is_map(expected):
        return _lacks_fields(actual.item_type, expected.item_type, _join(path, "value"))
    if actual != expected:
        raise UnknownColumnError(f"{path} of type {actual}, and not {expected}")
    return False


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

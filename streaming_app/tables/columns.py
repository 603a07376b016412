"""Adds the columns to a table that an earlier version of its definition did not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from streaming_app.errors import StorageError
from streaming_app.tables.arrow import with_plain_types

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming_app.tables.location import Location
    from streaming_app.tables.rust_table import CommitOptions, RustTable


def lacks_columns(location: Location, table: DeltaTable, schema: pa.Schema) -> bool:
    """Return whether a table lacks columns of `schema`, or fields of its nested columns.

    Raises StorageError if the table has columns that are not in `schema`, or have another type there.
    """
    actual = with_plain_types(pa.schema(table.schema().to_arrow()).empty_table()).schema
    found, wanted = (dict(_fields(pa.struct(list(one)), "")) for one in (actual, schema))
    unknown = [f"{path} that this release does not know" for path in sorted(found.keys() - wanted.keys())]
    other = [
        f"{path} of type {kind}, and not {wanted.get(path)}" for path, kind in found.items() if kind != wanted.get(path)
    ]
    if unknown or other:
        advice = "use the release that created it, or another --warehouse"
        raise StorageError(f"{location} has a column {(unknown or other)[0]}: {advice}")
    return found != wanted


def _fields(kind: pa.DataType, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the type of each column, and of each field of nested ones."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _fields(field.type, f"{path}.{field.name}".removeprefix("."))
    elif pa.types.is_list(kind):
        yield from _fields(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        yield from _fields(kind.item_type, f"{path}.value")
    else:
        yield path, str(kind)


def add_columns(own: RustTable, schema: pa.Schema) -> None:
    """Add these columns, in one commit; they are null in existing rows. Raises as `RustTable.change`."""
    from deltalake import Field, Schema  # noqa: PLC0415 - Spark's workers import the callers without delta-rs

    def write(table: DeltaTable, commit: CommitOptions) -> None:
        if lacks_columns(own.location, table, schema):  # another job may have added them
            known = {field.name for field in table.schema().fields}
            # an existing column gets only new fields; its comment in the table stays
            fields = Schema.from_arrow(schema).fields
            new = [Field(field.name, field.type) if field.name in known else field for field in fields]
            table.alter.add_columns(new, **commit)

    own.change(write)

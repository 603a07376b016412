"""Conversion between Arrow and Python (times, strings, nested values), and the column types of Spark and DataFusion.

For code that reads or writes many rows. Spark's workers also import this module.
"""

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.text import EPOCH

TIMESTAMP = pa.timestamp("us", "UTC")
"""The type of all times in the tables."""
_SCALARS = {
    "string": pa.string(),
    "timestamp": TIMESTAMP,
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # Python's range: the years 1 to 9999


def release_memory() -> None:
    """Return free memory to the system: of 300,000 groups glibc kept 390 MB until the first verdicts were done."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


def arrow_type(sql_type: str) -> pa.DataType:
    """Return the Arrow type for a type of Spark SQL, such as `array<struct<a:int,b:map<string,string>>>`.

    It is the one to which Spark converts it, with times in UTC.
    """
    kind, _, inner = sql_type.replace(" ", "").partition("<")
    inner = inner.removesuffix(">")
    if kind == "array":
        return pa.list_(arrow_type(inner))
    if kind == "map":
        return pa.map_(*map(arrow_type, _split(inner)))
    if kind == "struct":
        fields = (part.partition(":") for part in _split(inner))
        return pa.struct([(name, arrow_type(field)) for name, _, field in fields])
    return _SCALARS[kind]


def _split(text: str) -> list[str]:
    """Split at the commas that are not inside a nested type."""
    parts, depth = [""], 0
    for piece in re.split(r"([<>,])", text):
        depth += {"<": 1, ">": -1}.get(piece, 0)
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def to_arrow(result: Any) -> pa.Table:  # noqa: ANN401 - delta-rs' own type, which it does not export
    """Return a table of delta-rs as a table of pyarrow. `pa.table` would load pandas, which takes 0.3 s."""
    return pa.RecordBatchReader.from_stream(result).read_all()


def to_datetimes(
    column: pa.Array | pa.ChunkedArray, first_us: int = 0, known: dict[int, datetime] | None = None
) -> list[datetime | None]:
    """Return aware times; None for null and for times before 1970, before `first_us`, or after 9999.

    Arrow's `to_pylist` takes 3 to 7 us per value. This function converts equal times once: logs repeat many. `known`
    has the times of other columns by their microseconds, and gets the new ones.
    """
    numbers = column.cast(TIMESTAMP).cast(pa.int64())
    distinct = pc.drop_null(pc.unique(numbers)).to_pylist()
    times = {} if known is None else known
    for us in distinct:
        if us not in times and first_us <= us <= _LAST_US:
            times[us] = EPOCH + timedelta(microseconds=us)
    return [times.get(us) for us in numbers.to_pylist()]


def to_seconds(column: pa.ChunkedArray) -> list[float | None]:
    """Return times as seconds since 1970."""
    microseconds = column.cast(TIMESTAMP).cast(pa.int64())
    return list(pc.divide(microseconds.cast(pa.float64()), 1e6).to_pylist())


def microseconds(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return rows with times as microseconds since 1970: integers are faster than objects."""
    whole = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    columns = [
        column.cast(TIMESTAMP).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in whole.columns
    ]
    return pa.table(columns, names=whole.column_names)


def to_table(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows, with times in microseconds since 1970, as a table; missing columns become null."""
    listed = list(rows)
    arrays = [to_array([row.get(field.name) for row in listed], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of this type; times, also within lists, are microseconds since 1970."""
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_list(kind) and pa.types.is_timestamp(kind.value_type):
        return pa.array(values, pa.list_(pa.int64())).cast(kind)
    return pa.array(values, kind)


def to_values(column: pa.Array | pa.ChunkedArray, times: dict[int, datetime] | None = None) -> list[Any]:
    """Return the values of a column; equal strings become one object, and equal times, also the ones in `times`."""
    if pa.types.is_timestamp(column.type):
        return to_datetimes(column, known=times)
    values: list[Any] = column.to_pylist()
    return intern_strings(values) if isinstance(next(iter(values), None), str) else values


def to_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as dicts, with maps as dicts, too. If two columns have the same name, the last one counts.

    Arrow's `to_pylist` would load pandas to convert times, which takes 0.3 s.
    """
    columns: dict[str, list[Any]] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if field.type == TIMESTAMP:
            columns[field.name] = to_datetimes(column, _FIRST_US)
        elif pa.types.is_nested(field.type):
            columns[field.name] = [to_python(value, field.type) for value in column.to_pylist()]
        else:
            columns[field.name] = column.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def intern_strings(values: Iterable[str], known: dict[str, str] | None = None) -> list[str]:
    """Return the values; equal strings become one object, also the ones in `known`, which gets the new ones."""
    seen = {} if known is None else known
    return [seen.setdefault(value, value) for value in values]


def keep_fields(lists: pa.Array, names: Sequence[str]) -> pa.Array:
    """Return lists of structs with only these fields; null becomes an empty list."""
    structs = lists.flatten()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([structs.field(n) for n in names], names))


def to_python(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - any Arrow value
    """Return a value that `to_pylist` gave for this type, with maps as dicts at any depth."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_struct(kind):
        return {field.name: to_python(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return [to_python(item, kind.value_type) for item in value]
    return value


def with_plain_types(table: pa.Table) -> pa.Table:
    """Return the table with strings and bytes in place of DataFusion's string views and binary views.

    Arrow cannot compare or filter views, and pandas cannot read them within lists.
    """
    return table.cast(pa.schema([field.with_type(_plain_type(field.type)) for field in table.schema]))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind

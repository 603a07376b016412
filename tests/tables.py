"""A warehouse's tables made by delta-rs, for tests that need tables and no Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from schemas.table_definitions import WAREHOUSE_FORMAT, table, tables
from streaming_app.serve.warehouse import FORMAT_PROPERTY

_SCALARS = {
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}


def make_warehouse(path: Path) -> Path:
    """Empty tables of today's format below `path`."""
    for definition in tables():
        location = str(path / definition.name)
        made = DeltaTable.create(location, arrow_schema(definition.name), partition_by=["cluster"])
        # create() takes only properties that delta-rs knows
        made.alter.set_table_properties({FORMAT_PROPERTY: str(WAREHOUSE_FORMAT)}, raise_if_not_exists=False)
    return path


def arrow_schema(name: str) -> pa.Schema:
    """The columns of a table as Spark hands them to Arrow."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in table(name).columns])


def arrow_type(spelled: str) -> pa.DataType:
    """A type of Spark SQL, such as `array<struct<a:int,b:map<string,string>>>`."""
    kind, _, inner = spelled.replace(" ", "").partition("<")
    inner = inner.removesuffix(">")
    if kind == "array":
        return pa.list_(arrow_type(inner))
    if kind == "map":
        return pa.map_(*map(arrow_type, _parts(inner)))
    if kind == "struct":
        return pa.struct([(name, arrow_type(of)) for name, _, of in (part.partition(":") for part in _parts(inner))])
    return _SCALARS[kind]


def _parts(spelled: str) -> list[str]:
    """Split at the commas that are not within another type."""
    parts, depth = [""], 0
    for piece in re.split(r"([<>,])", spelled):
        depth += {"<": 1, ">": -1}.get(piece, 0)
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    return parts

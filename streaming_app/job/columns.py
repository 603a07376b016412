"""What a table of an older release lacks: the columns to add, at any depth. Types are Spark's."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StructType


class UnknownColumnError(Exception):
    """The table has a column that this release does not know, or knows with another type; its text names it."""


def additions(have: DataType, want: DataType, path: str = "") -> Iterator[tuple[str, str]]:
    """Every column that `want` has beyond `have`, as (`members.element.joined_at`, SQL type), outer ones first.

    Raises UnknownColumnError where adding columns does not make the one the other.
    """
    if isinstance(have, StructType) and isinstance(want, StructType):
        known = {field.name: field.dataType for field in have}
        if newer := sorted(known.keys() - set(want.names)):
            raise UnknownColumnError(_joined(path, newer[0]))
        for field in want:
            name = _joined(path, field.name)
            if field.name in known:
                yield from additions(known[field.name], field.dataType, name)
            else:
                yield name, field.dataType.simpleString()
    elif isinstance(have, ArrayType) and isinstance(want, ArrayType):
        yield from additions(have.elementType, want.elementType, _joined(path, "element"))
    elif isinstance(have, MapType) and isinstance(want, MapType):
        yield from additions(have.valueType, want.valueType, _joined(path, "value"))
    elif have != want:
        raise UnknownColumnError(path)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

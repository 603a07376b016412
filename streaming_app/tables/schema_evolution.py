"""Compares the schema of a stored table with this release's: which columns are to be added, at any depth."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StructType


class UnknownColumnError(Exception):
    """The table has a column that this release does not know, or knows with another type; the text says which."""


def missing_columns(actual: DataType, expected: DataType, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each column of `expected` missing in `actual` as (`members.element.joined_at`, SQL type); outer ones first.

    Raises UnknownColumnError if adding columns is not enough to turn `actual` into `expected`.
    """
    if isinstance(actual, StructType) and isinstance(expected, StructType):
        existing = {field.name: field.dataType for field in actual}
        if unknown := sorted(existing.keys() - set(expected.names)):
            raise UnknownColumnError(f"{_join(path, unknown[0])} that this release does not know")
        for field in expected:
            name = _join(path, field.name)
            if field.name in existing:
                yield from missing_columns(existing[field.name], field.dataType, name)
            else:
                yield name, field.dataType.simpleString()
    elif isinstance(actual, ArrayType) and isinstance(expected, ArrayType):
        yield from missing_columns(actual.elementType, expected.elementType, _join(path, "element"))
    elif isinstance(actual, MapType) and isinstance(expected, MapType):
        yield from missing_columns(actual.valueType, expected.valueType, _join(path, "value"))
    elif actual != expected:
        raise UnknownColumnError(f"{path} of type {actual.simpleString()}, and not {expected.simpleString()}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

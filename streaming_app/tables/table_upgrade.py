"""Upgrades tables of older releases: adds columns, and removes deletion vectors.

Theory of operation
-------------------
Until 0.2.0 Spark wrote deletion vectors: separate files that say which rows of a data file are deleted or replaced.
pandas, pyarrow, polars and other readers refuse a table whose protocol allows them. `STEPS` rewrites a table in place:
first the data files with vectors, then a checkpoint, from which readers start, and in the last commit the protocol,
which becomes that of a new table. The table keeps its id, rows, properties and batch numbers, so the checkpoints of the
streams still fit.

Every step is one commit or one file, and leaves the same rows. The protocol says whether a table needs the upgrade, and
only the last step changes it: an upgrade that was killed starts again, and finds less to do. The last commit fails if
the table has changed since the check that it has no vectors; then the steps are repeated. Older versions with vectors
keep their own protocol until they expire.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import Field, QueryBuilder, Schema, write_deltalake

from streaming_app.errors import StorageError
from streaming_app.tables.arrow import with_plain_types

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming_app.report import Report
    from streaming_app.tables.location import Location

_FEATURE = "deletionVectors"
_LEGACY = {"appendOnly", "invariants"}
"""The features of every table with the protocol of a new table."""
_ATTEMPTS = 5  # for a table that a job of another cluster changes meanwhile


class UnknownColumnError(Exception):
    """The table has a column that this release does not know, or knows with another type; the text names it."""


def add_columns(location: Location, table: DeltaTable, schema: pa.Schema) -> None:
    """Add the columns that an older release did not have, in one commit; they are null in existing rows.

    Raises StorageError if the table has columns that are not in `schema`, or have another type there.
    """
    actual = with_plain_types(pa.schema(table.schema().to_arrow()).empty_table()).schema
    try:
        is_old = _lacks_fields(pa.struct(list(actual)), pa.struct(list(schema)), "")
    except UnknownColumnError as error:
        raise StorageError(
            f"{location} has a column {error}: use the release that created it, or another --warehouse"
        ) from None
    if is_old:  # an existing column gets only new fields; its comment in the table stays
        fields = Schema.from_arrow(schema).fields
        known = set(actual.names)
        table.alter.add_columns([Field(field.name, field.type) if field.name in known else field for field in fields])


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


def remove_deletion_vectors(opened: Iterable[tuple[Location, DeltaTable]], report: Report) -> Sequence[Location]:
    """Rewrite the tables that may have deletion vectors, and return them; report each.

    Raises StorageError if other processes change a table all the time, and delta-rs' errors.
    """
    old = [location for location, table in opened if _may_have_vectors(table)]
    if old:
        report(f"Upgrading the warehouse, once: {len(old)} tables are rewritten without deletion vectors")
    for number, location in enumerate(old, 1):
        _upgrade(location)
        report(f"{location.name} is rewritten, {number} of {len(old)} tables")
    return old


def _may_have_vectors(table: DeltaTable) -> bool:
    return _FEATURE in (table.protocol().reader_features or ())


def _has_vectors(table: DeltaTable) -> bool:
    return bool(pa.table(table.deletion_vectors()).num_rows)


def _upgrade(location: Location) -> None:
    for _ in range(_ATTEMPTS):
        for step in STEPS:
            step(location)
        if not _may_have_vectors(location.delta_table()):
            return
    raise StorageError(f"Cannot upgrade {location}: another process changes it all the time")


def _rewrite_files(location: Location) -> None:
    """Write all rows again, in one commit, without the rows that the vectors delete."""
    table = location.delta_table()
    if _has_vectors(table):
        rows = QueryBuilder().register("t", table).execute("SELECT * FROM t")
        write_deltalake(table, rows, mode="overwrite")


def _begin_log_anew(location: Location) -> None:
    location.delta_table().create_checkpoint()


def _drop_feature(location: Location) -> None:
    """Commit the protocol without the feature, unless the table has vectors or has changed meanwhile.

    delta-rs cannot drop a feature, and adds others if it changes a property of such a table (deltalake 1.6). So this
    function writes the commit itself, as a file of the log with one action per line.
    """
    table = location.delta_table()
    if _has_vectors(table):
        return
    commit = {
        "timestamp": int(time.time() * 1000),
        "operation": "DROP FEATURE",
        "operationParameters": {"featureName": _FEATURE},
        "isBlindAppend": False,
    }
    actions = {"commitInfo": commit, "metaData": _metadata(table), "protocol": _protocol(table)}
    version = location / "_delta_log" / f"{table.version() + 1:020}.json"
    if version.find_text() is None:
        version.write_text("\n".join(json.dumps({name: action}) for name, action in actions.items()))


def _metadata(table: DeltaTable) -> dict[str, Any]:
    """Return the metadata of the table, changed so that nobody writes vectors any more."""
    known = table.metadata()
    return {
        "id": str(known.id),
        "name": known.name,
        "description": known.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": known.partition_columns,
        "createdTime": known.created_time,
        "configuration": {**known.configuration, "delta.enableDeletionVectors": "false"},
    }


def _protocol(table: DeltaTable) -> dict[str, Any]:
    """Return the protocol of the table without the feature; if it has no other features, that of a new table."""
    protocol = table.protocol()
    readers = sorted({*(protocol.reader_features or ())} - {_FEATURE})
    writers = sorted({*(protocol.writer_features or ())} - {_FEATURE})
    if not readers and set(writers) <= _LEGACY:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    reading = {"minReaderVersion": 3, "readerFeatures": readers} if readers else {"minReaderVersion": 1}
    return {**reading, "minWriterVersion": 7, "writerFeatures": writers}


STEPS: list[Callable[[Location], None]] = [_rewrite_files, _begin_log_anew, _drop_feature]

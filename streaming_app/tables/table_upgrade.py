"""Makes the tables of older releases like new ones: adds columns, and removes deletion vectors.

Theory of operation
-------------------
Until 0.2.0 Spark noted in files of their own which rows of a file are deleted or replaced. pandas, pyarrow, polars and
other readers refuse a table that may have such deletion vectors, by its protocol. `STEPS` rewrites a table in place:
no vector is written any more, the files that have some are rewritten, a checkpoint of the log makes readers start from
there, and the last commit gives the table the protocol of a new one. Its id, rows, properties and the numbers of the
batches that it holds stay, so the checkpoints of the streams fit.

Every step is one commit or one file, and leaves the same rows. Whether a table is to be upgraded is read from its
protocol, which only the last step changes: an upgrade that was killed begins again, and finds less to do. That commit
fails if the table has changed since it was found to be without vectors, and then the steps are repeated. Older
versions, which have vectors, say so in their own protocol until they expire.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from streaming_app.errors import JobError
from streaming_app.tables.definitions import Table
from streaming_app.tables.spark_sql import identifier
from streaming_app.text import duration

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    from streaming_app.report import Report
    from streaming_app.tables.location import Location

_FEATURE = "deletionVectors"
_LEGACY = {"appendOnly", "invariants"}
"""Features of every table with the protocol of a new one."""
_ATTEMPTS = 5  # of a table that a job for another cluster changes meanwhile
_SILENT_SECONDS = 2.0
_EXISTS = "FileAlreadyExistsException"


class UnknownColumnError(Exception):
    """The table has a column that this release does not know, or knows with another type; the text says which."""


def add_columns(spark: SparkSession, location: Location, table: DeltaTable, definition: Table) -> None:
    """Add the columns that an older release did not have; in its rows they are null.

    Raises JobError if the table has columns that this release does not know.
    """
    actual = StructType.fromJson(json.loads(table.schema().to_json()))
    try:
        missing = list(missing_columns(actual, StructType.fromDDL(definition.ddl)))
    except UnknownColumnError as error:
        raise JobError(
            f"{location} has a column {error}: use the release that created it, or another --warehouse"
        ) from None
    if missing:  # in one commit, as each takes Spark half a second
        new = ", ".join(f"{column} {column_type}" for column, column_type in missing)
        spark.sql(f"ALTER TABLE delta.{identifier(location)} ADD COLUMNS ({new})")


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


def remove_deletion_vectors(spark: SparkSession, opened: Iterable[tuple[Location, DeltaTable]], report: Report) -> None:
    """Rewrite the tables that may have deletion vectors. Reports what it does if it takes longer than two seconds.

    Raises JobError if a table is changed by others all the time, and Spark's and delta-rs' errors.
    """
    old = [location for location, table in opened if _may_have_vectors(table)]
    if not old:
        return
    with _progress(report, len(old)) as done:
        for location in old:
            _upgrade(spark, location)
            done(location.name)


def _may_have_vectors(table: DeltaTable) -> bool:
    return _FEATURE in (table.protocol().reader_features or ())


def _has_vectors(table: DeltaTable) -> bool:
    return bool(pa.table(table.deletion_vectors()).num_rows)


def _upgrade(spark: SparkSession, location: Location) -> None:
    for _ in range(_ATTEMPTS):
        for step in STEPS:
            step(spark, location)
        if not _may_have_vectors(location.delta_table()):
            return
    raise JobError(f"Cannot upgrade {location}: another process changes it all the time")


def _write_none(spark: SparkSession, location: Location) -> None:
    spark.sql(f"ALTER TABLE delta.{identifier(location)} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")


def _rewrite_files(spark: SparkSession, location: Location) -> None:
    if _has_vectors(location.delta_table()):
        spark.sql(f"REORG TABLE delta.{identifier(location)} APPLY (PURGE)")


def _begin_log_anew(_spark: SparkSession, location: Location) -> None:
    location.delta_table().create_checkpoint()


def _drop_feature(spark: SparkSession, location: Location) -> None:
    """Commit the protocol without the feature, unless the table has vectors or changes at the same time."""
    table = location.delta_table()
    if _has_vectors(table):
        return
    commit = {
        "timestamp": int(time.time() * 1000),
        "operation": "DROP FEATURE",
        "operationParameters": {"featureName": _FEATURE},
        "isBlindAppend": False,
    }
    lines = [json.dumps({name: action}) for name, action in (("commitInfo", commit), ("protocol", _protocol(table)))]
    _commit(spark, location, table.version() + 1, lines)


def _protocol(table: DeltaTable) -> dict[str, Any]:
    """Return the protocol of the table without the feature: that of a new table if it has no other feature."""
    protocol = table.protocol()
    readers = sorted({*(protocol.reader_features or ())} - {_FEATURE})
    writers = sorted({*(protocol.writer_features or ())} - {_FEATURE})
    if not readers and set(writers) <= _LEGACY:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    reading = {"minReaderVersion": 3, "readerFeatures": readers} if readers else {"minReaderVersion": 1}
    return {**reading, "minWriterVersion": 7, "writerFeatures": writers}


def _commit(spark: SparkSession, location: Location, version: int, lines: Sequence[str]) -> None:
    """Write a version of the table as Delta does, which every store does in its own way; none if it is there."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(location))  # noqa: SLF001 - as above
    path = jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020}.json")
    actions = jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(lines)).iterator()
    try:
        log.store().write(path, actions, False, log.newDeltaHadoopConf())  # noqa: FBT003 - Java's signature: overwrite
    except Py4JJavaError as error:
        if not str(error.java_exception.getClass().getName()).endswith(_EXISTS):
            raise


STEPS: list[Callable[[SparkSession, Location], None]] = [_write_none, _rewrite_files, _begin_log_anew, _drop_feature]


@contextmanager
def _progress(report: Report, count: int) -> Iterator[Callable[[str], None]]:
    """Report the upgrade of `count` tables once it takes long; the function is called with the name of each."""
    started, done, lock = time.monotonic(), list[str](), threading.Lock()
    is_slow = False

    def begin() -> None:
        nonlocal is_slow
        with lock:
            is_slow = True
            report(f"Upgrading the warehouse, once: {count} tables are rewritten without deletion vectors")

    def finish(name: str) -> None:
        with lock:
            done.append(name)
            if is_slow:
                report(f"{name} is rewritten, {len(done)} of {count} tables")

    timer = threading.Timer(_SILENT_SECONDS, begin)
    timer.daemon = True
    timer.start()
    try:
        yield finish
    finally:
        timer.cancel()
        timer.join()
    if is_slow:
        report(f"The warehouse is upgraded, {duration(time.monotonic() - started)}")

"""Writes the Delta tables with Spark, for the job, and maintains them. `few_rows` writes a few rows without Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from streaming_app.tables.definitions import Table, table
from streaming_app.tables.files import warehouse_files
from streaming_app.tables.location import Location
from streaming_app.tables.reader import query_table, quote, time_literal
from streaming_app.tables.retention import SELECT_ROWS_TO_KEEP
from streaming_app.tables.rust_table import remove_orphan_checksums, writing
from streaming_app.tables.spark_sql import SQL_TEXT_CONF, literal
from streaming_app.tables.table_creation import prepare_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

_MAX_FILE_BYTES_CONF = "spark.databricks.delta.optimize.maxFileSize"
_GROUP_FILE_BYTES = 128 << 10  # of files of groups, unless these have more than the next many bytes in all
_LARGE_TABLE_BYTES = 32 << 20
_MAX_FILE_BYTES = 1 << 30  # of other files, as by default
_ROWS_PER_GROUP_FILE = 500  # of the first ones, which have about that size
_MIN_FILE_BYTES = 32 << 20  # files of this size or larger are rewritten only after many of their rows were deleted
_FEW_ROWS_CONF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",  # the rows are known to match the condition
}


class DeltaWriter:
    """Writes the rows of one cluster into the tables below `location`; `files` reads and writes the files there.

    It sets what it needs in the configuration of `spark`, whatever a user set there.
    """

    def __init__(self, spark: SparkSession, location: Location | Path | str, cluster: str) -> None:
        self._spark = spark
        self.location = self._location = Location.of(location)
        self.cluster = self._cluster = cluster
        self.files = warehouse_files(self._location, spark)
        self._preparing = Lock()
        for name, value in SQL_TEXT_CONF.items():
            spark.conf.set(name, value)

    def prepare(self) -> set[str]:
        """Create missing tables and add missing columns; return the names of the new tables.

        Raises JobError if the warehouse cannot be written, or was created by something else.
        """
        with self._preparing:  # both streams do it when they start
            return prepare_tables(self._spark, self._location, self.files)

    def without_codegen(self) -> DeltaWriter:
        """Return a writer whose session interprets its plans: for a few rows, compiling takes longer than it saves."""
        session = self._spark.newSession()
        for name, value in _FEW_ROWS_CONF.items():
            session.conf.set(name, value)
        return DeltaWriter(session, self._location, self._cluster)

    def to_dataframe(self, rows: pa.Table) -> DataFrame:
        """Return `rows` as a DataFrame of this writer's session. PySpark takes no column without a chunk."""
        return self._spark.createDataFrame(rows if rows.num_rows else rows.schema.empty_table())

    def stored_groups(self) -> DataFrame:
        """Return the stored rows of all groups."""
        return self._rows("groups")

    def stored_rows(self, name: str) -> DataFrame:
        """Return the stored rows of a table."""
        return self._rows(name)

    def replace_rows(self, name: str, rows: DataFrame) -> None:
        """Replace all rows of this cluster in a table, in one commit; `rows` may be read from it."""
        condition = f"cluster = {literal(self._cluster)}"
        rows.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(self._path(name))

    def is_empty(self, name: str) -> bool:
        """Return whether a table has no row of any cluster. By delta-rs: Spark takes a second to plan the query."""
        return int((self._location / name).delta_table().get_add_actions().num_rows) == 0

    def identity(self, name: str) -> str:
        """Return what identifies this cluster's rows in a table: it differs for a table created again or elsewhere."""
        return f"{(self._location / name).delta_table().metadata().id}/{self._cluster}"

    def highest_offsets(
        self,
        name: str,
        partition_column: str,
        time_column: str,
        after: datetime | None = None,
        where: str | None = None,
    ) -> dict[int, int]:
        """Return the highest offset in a table by partition of the topic, of the rows whose time is after `after`.

        `where` is a condition of SQL that limits the rows further.
        """
        condition = self._own_rows()
        if after is not None:
            condition += f" AND {time_column} > {time_literal(after)}"
        if where is not None:
            condition += f" AND ({where})"
        query = f'SELECT "{partition_column}", max("offset") FROM t WHERE {condition} GROUP BY 1'  # noqa: S608 - quoted
        partitions, offsets = query_table(self._location / name, query).columns
        return dict(zip(partitions.to_pylist(), offsets.to_pylist(), strict=True))

    def newest(self, name: str, time_column: str) -> datetime | None:
        """Return the latest time in a column of a table, aware; None if it holds none."""
        query = f"SELECT max({time_column}) FROM t WHERE {self._own_rows()}"  # noqa: S608 - quoted
        newest: datetime | None = query_table(self._location / name, query).column(0)[0].as_py()
        return newest

    def delete_groups(self) -> None:
        """Delete the rows of all groups of this cluster."""
        (self._location / "groups").delta_table().delete(self._own_rows())

    def append(self, name: str, rows: DataFrame, writer: str, batch_id: int) -> None:
        """Append `rows` to table `name` exactly once: Delta skips the same writer and batch the second time."""
        frame = rows.write.format("delta").mode("append")
        with writing(self._location / name):
            frame.option("txnAppId", f"{writer}-{name}").option("txnVersion", batch_id).save(self._path(name))

    def last_append(self, name: str, writers: Iterable[str]) -> int:
        """Return the highest batch that `append` got of these writers for a table; -1 if there was none."""
        table = (self._location / name).delta_table()
        batches = [table.transaction_version(f"{writer}-{name}") for writer in writers]
        return max((batch for batch in batches if batch is not None), default=-1)

    def rewrite_events(self, events: DataFrame, retracted: DataFrame) -> None:
        """Delete the `retracted` events, of operations that an earlier batch saw only in part, and insert `events`.

        It merges by key, so that a retry changes nothing. It is rare, so its cost does not matter.
        """
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        key = table("group_events").key
        changes = retracted.withColumn("deleted", F.lit(True)).unionByName(events.withColumn("deleted", F.lit(False)))  # noqa: FBT003
        columns = {column.name: f"s.{column.name}" for column in table("group_events").columns}
        condition = " AND ".join(f"t.{name} <=> s.{name}" for name in key)
        with writing(self._location / "group_events"):
            merge = self._delta_table("group_events").alias("t").merge(changes.alias("s"), condition)
            merge.whenMatchedDelete("s.deleted").whenNotMatchedInsert("NOT s.deleted", values=columns).execute()

    def add_groups(self, rows: DataFrame) -> None:
        """Append the rows of groups that are not in the table yet, in files as `compact` makes them."""
        ordered = rows.repartitionByRange("group_id").sortWithinPartitions("group_id")
        frame = ordered.write.format("delta").mode("append").option("maxRecordsPerFile", _ROWS_PER_GROUP_FILE)
        frame.save(self._path("groups"))

    def replace_groups(self, rows: DataFrame, group_ids: Sequence[str]) -> None:
        """Replace the rows of exactly these groups by `rows`, in one commit. Delta takes the condition as text only."""
        condition = f"cluster = {literal(self._cluster)} AND group_id IN ({', '.join(map(literal, group_ids))})"
        rows.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(self._path("groups"))

    def merge_groups(self, rows: DataFrame) -> None:
        """Insert the rows of any number of groups, replacing their stored rows."""
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        condition = self._is_own("t.cluster") & (F.col("t.group_id") == F.col("s.group_id"))
        merge = self._delta_table("groups").alias("t").merge(rows.alias("s"), condition)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def compact(self, name: str) -> None:
        """Compact the small files of a table, and rewrite files of which many rows were deleted.

        A small table of groups gets small files, each with a range of group ids of its own, see `few_rows`.
        """
        self._spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(_MIN_FILE_BYTES))
        with writing(self._location / name):
            optimize = self._delta_table(name).optimize().where(f"cluster = {literal(self._cluster)}")
            is_small = name == "groups" and self._bytes(name) <= _LARGE_TABLE_BYTES
            self._spark.conf.set(_MAX_FILE_BYTES_CONF, str(_GROUP_FILE_BYTES if is_small else _MAX_FILE_BYTES))
            if is_small:
                optimize.executeZOrderBy("group_id")
            else:
                optimize.executeCompaction()

    def clean_up_log(self, name: str) -> None:
        """Remove the log entries of versions that are older than the table's log retention.

        Delta does so by itself at checkpoints, but only once a day is over: by then there are too many. In a local
        directory, remove what is left of entries that delta-rs removed.
        """
        delta = self._delta()
        log = self._delta_log(name)
        # Between the snapshot and the granularity: the retention, since Delta 4.4 the entry of the catalog before it.
        defaults = [getattr(log, f"cleanUpExpiredLogs$default${n}")() for n in range(2, self._clean_up_parameters)]
        log.cleanUpExpiredLogs(log.unsafeVolatileSnapshot(), *defaults, delta.TruncationGranularity.MINUTE())
        if self._location.is_local:
            remove_orphan_checksums((self._location / name / "_delta_log").path)

    def delete_expired(self, definition: Table, days: float) -> int:
        """Delete the rows whose time, by `definition.expires_by`, is more than `days` ago; return how many there were.

        Rows of a history that describe what still held then are kept (see `retention`).
        """
        with writing(self._location / definition.name):
            return self._delete_expired(definition, days)

    def _delete_expired(self, definition: Table, days: float) -> int:
        name = definition.name
        end = datetime.now(timezone.utc) - timedelta(days=days)
        condition = f"cluster = {literal(self._cluster)} AND {definition.expires_by} < TIMESTAMP '{end.isoformat()}'"
        expired = self._spark.read.format("delta").load(self._path(name)).where(condition)
        if name not in SELECT_ROWS_TO_KEEP:
            if count := expired.count():
                self._delta_table(name).delete(condition)
            return count
        kept = SELECT_ROWS_TO_KEEP[name](expired, self.stored_groups())
        count = expired.count() - kept.count()
        if count:
            kept.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(self._path(name))
        return count

    def _bytes(self, name: str) -> int:
        files = (self._location / name).delta_table().get_add_actions()
        return sum(files["size_bytes"].to_pylist())

    def vacuum(self, name: str) -> None:
        """Remove the data files that no version within the table's retention needs."""
        self._delta_table(name).vacuum()

    def _rows(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(self._path(name)).where(self._is_own())

    def _is_own(self, column: str = "cluster") -> Column:
        """Return the condition that a row is of this writer's cluster."""
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        return F.col(column) == F.lit(self._cluster)

    def _own_rows(self) -> str:
        """Return the same condition as SQL for delta-rs."""
        return f"cluster = {quote(self._cluster)}"

    def _delta(self) -> Any:  # noqa: ANN401 - a Java package
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the JVM has no public name
        return jvm.org.apache.spark.sql.delta

    @cached_property
    def _clean_up_parameters(self) -> int:
        """How many parameters Delta's clean-up of a log has; looked up once, since each method is a call of the JVM."""
        methods = self._delta_log("groups").getClass().getMethods()
        return next(int(one.getParameterCount()) for one in methods if one.getName() == "cleanUpExpiredLogs")

    def _delta_log(self, name: str) -> Any:  # noqa: ANN401 - a Java object
        return self._delta().DeltaLog.forTable(self._spark._jsparkSession, self._path(name))  # noqa: SLF001 - as above

    def _delta_table(self, name: str) -> Any:  # noqa: ANN401 - delta ships no types
        from delta.tables import DeltaTable  # noqa: PLC0415 - loads Spark

        return DeltaTable.forPath(self._spark, self._path(name))

    def _path(self, name: str) -> str:
        return str(self._location / name)

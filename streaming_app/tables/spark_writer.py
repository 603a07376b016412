"""Writes large batches into the Delta tables with Spark, and maintains the tables; see `which_writer` for the others.

There are two ways to write: rows are appended, as a batch exactly once, or they replace those of the cluster. Spark
writes the files, and delta-rs commits them: a commit carries the batch and the term of the job, see `fence`, of which
Spark's own takes one, and it is a conditional put in every store, where Spark's is none in S3. Spark commits by itself
what deletes expired rows and compacts files, between batches, and with the term where it may.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake.transaction import AddAction

from streaming_app.errors import JobError
from streaming_app.report import Report
from streaming_app.tables.definitions import Table, tables
from streaming_app.tables.files import warehouse_files
from streaming_app.tables.group_files import file_rows, group_files, is_well_divided
from streaming_app.tables.kept_table import newest_table
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.reader import query_table, time_literal
from streaming_app.tables.rust_table import Batch, Commit, RustTable, remove_orphan_checksums, writing
from streaming_app.tables.spark_sql import SQL_TEXT_CONF, literal, sorted_parts
from streaming_app.tables.table_creation import prepare_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from streaming_app.tables.fence import Fence

_MIN_FILE_BYTES = 32 << 20  # files of this size or larger stay as they are: a compaction never takes longer than that
_SORTED_GROUPS = 10_000  # rows that Spark sorts at a time, in each task
_CONF = {
    # Of group ids that begin with the same 32 characters, the ranges would be the same.
    "spark.databricks.io.skipping.stringPrefixLength": "512",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",  # the rows are known to match the condition
    "spark.databricks.delta.vacuum.logging.enabled": "false",  # in commits, which carry no term
}


class SparkWriter:
    """Writes the rows of one cluster into the tables below `location`; `files` reads and writes the files there.

    It sets what it needs in the configuration of `spark`, whatever a user set there.
    """

    def __init__(
        self, spark: SparkSession, location: Location | Path | str, cluster: str, fence: Fence | None = None
    ) -> None:
        """Prepare; `fence` is that of the job, None outside of one."""
        self._spark = spark
        self.fence = fence
        self.location = self._location = Location.of(location)
        self.cluster = self._cluster = cluster
        self.files = warehouse_files(self._location, spark)
        self._preparing, self._has_claimed = Lock(), False
        for name, value in (SQL_TEXT_CONF | _CONF).items():
            spark.conf.set(name, value)

    def prepare(self, report: Report = lambda _: None) -> set[str]:
        """Create missing tables and upgrade those of older releases; return the names of the new tables.

        Raises JobError if the warehouse cannot be written, or was created by something else.
        """
        with self._preparing:  # both streams do it when they start
            new = prepare_tables(self._spark, self._location, self.files, report)
            claimed = {one.name for one in tables()} if not self._has_claimed else new
            if self.fence and claimed:
                self._claim(self.fence, claimed)
            return new

    def _claim(self, fence: Fence, names: Iterable[str]) -> None:
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - Spark's workers import this without delta-rs

        try:
            fence.claim(self._location / name for name in sorted(names))
        except (DeltaError, OSError) as error:
            raise JobError(f"Cannot write the warehouse {self._location}: {describe_error(error)}") from None
        self._has_claimed = True

    def table(self, name: str) -> RustTable:
        """Return a table for what this process holds."""
        return RustTable(self._location / name, self._cluster, self.fence)

    def to_dataframe(self, rows: pa.Table) -> DataFrame:
        """Return `rows` as a DataFrame of this writer's session. PySpark takes no column without a chunk."""
        return self._spark.createDataFrame(rows if rows.num_rows else rows.schema.empty_table())

    def stored_rows(self, name: str) -> DataFrame:
        """Return the stored rows of a table."""
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        rows = self._spark.read.format("delta").load(self._path(name))
        return rows.where(F.col("cluster") == F.lit(self._cluster))

    def is_empty(self, name: str) -> bool:
        """Return whether a table has no row of any cluster. By delta-rs: Spark takes a second to plan the query."""
        return int(newest_table(self._location / name).get_add_actions().num_rows) == 0

    def identity(self, name: str) -> str:
        """Return what identifies this cluster's rows in a table: it differs for a table created again or elsewhere."""
        return f"{newest_table(self._location / name).metadata().id}/{self._cluster}"

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
        condition = self.table(name).own_rows
        if after is not None:
            condition += f" AND {time_column} > {time_literal(after)}"
        if where is not None:
            condition += f" AND ({where})"
        query = f'SELECT "{partition_column}", max("offset") FROM t WHERE {condition} GROUP BY 1'  # noqa: S608 - quoted
        partitions, offsets = query_table(self._location / name, query).columns
        return dict(zip(partitions.to_pylist(), offsets.to_pylist(), strict=True))

    def newest(self, name: str, time_column: str) -> datetime | None:
        """Return the latest time in a column of a table, aware; None if it holds none."""
        query = f"SELECT max({time_column}) FROM t WHERE {self.table(name).own_rows}"  # noqa: S608 - quoted
        newest: datetime | None = query_table(self._location / name, query).column(0)[0].as_py()
        return newest

    def delete_groups(self, partitions: Collection[int] | None = None) -> None:
        """Delete the rows of all groups of this cluster, or of those in these partitions of the topic."""
        self.table("groups").delete_partitions(partitions)

    def append(self, name: str, rows: DataFrame, writer: str, batch_id: int) -> None:
        """Append `rows` to table `name` exactly once, as the batch of a writer."""
        table, batch = self.table(name), Batch([f"{writer}-{name}"], batch_id)
        if not batch.is_in(table.open()):
            table.append_files(self._write_files(name, rows), batch)

    def last_append(self, name: str, writers: Iterable[str]) -> int:
        """Return the highest batch that `append` got of these writers for a table; -1 if there was none."""
        table = newest_table(self._location / name)
        batches = [table.transaction_version(f"{writer}-{name}") for writer in writers]
        return max((batch for batch in batches if batch is not None), default=-1)

    def replace(self, name: str, rows: DataFrame, most: int = 0) -> None:
        """Replace the rows of this cluster, in one commit, by `rows`, which may be read from the table.

        A file gets so many rows at most; 0: any number.
        """
        written = self._write_files(name, rows, most)

        def write(table: DeltaTable, commit: Commit) -> None:
            table.create_write_transaction(
                [*written],
                "overwrite",
                table.schema(),
                table.metadata().partition_columns,
                [("cluster", "=", self._cluster)],
                **commit,
            )

        self.table(name).change(write)

    def _replace_expired(self, name: str, rows: DataFrame, condition: str) -> None:
        """Replace the rows of this cluster that match, by a commit of Spark's, which rewrites files in part."""
        frame = rows.write.format("delta").mode("overwrite")
        frame = frame.option("replaceWhere", f"cluster = {literal(self._cluster)} AND {condition}")
        with writing(self._location / name):
            if self.fence:  # Delta skips a write of an earlier term
                frame = frame.option("txnAppId", self.fence.application)
                frame = frame.option("txnVersion", self.fence.next_version())
            frame.save(self._path(name))
            self._check_owner(name)

    def _write_files(self, name: str, rows: DataFrame, file_rows: int = 0) -> list[AddAction]:
        """Write rows into new files of a table, which has them once they are committed; of so many rows at most."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the JVM has no public name
        none, conf = jvm.scala.Option.empty(), self._spark._jsparkSession.sessionState().conf()  # noqa: SLF001 - as above
        options = jvm.PythonUtils.toScalaMap({"maxRecordsPerFile": str(file_rows)})
        written = (
            self._delta_log(name)
            .startTransaction(none, none)
            .writeFiles(rows._jdf, jvm.scala.Option.apply(self._delta().DeltaOptions(options, conf)))  # noqa: SLF001 - as above
        )
        return [_addition(written.apply(number).json()) for number in range(written.size())]

    def _check_owner(self, name: str) -> None:
        if self.fence:
            self.fence.check(newest_table(self._location / name))

    def replace_groups(self, rows: DataFrame, count: int, group_ids: Sequence[str] | None = None) -> None:
        """Replace the rows of these groups, by default of those in `rows`, by `rows`, which are so many.

        It writes the rows of all groups anew, in files as `group_files` says: nearly all would have to be written.
        """
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        files = group_files(newest_table(self._location / "groups"), self._cluster)
        if files:
            stored = self.stored_rows("groups")
            if group_ids is None:
                others = stored.join(rows.select("group_id"), "group_id", "left_anti")
            else:
                others = stored.where(~F.col("group_id").isin(list(group_ids)))
            rows = rows.unionByName(others)
        parts = sorted_parts(self._spark, count + sum(file.rows for file in files), _SORTED_GROUPS)
        ordered = rows.repartitionByRange(parts, "group_id").sortWithinPartitions("group_id")
        self.replace("groups", ordered, file_rows(files))

    def compact(self, name: str) -> None:
        """Compact the small files of a table; by delta-rs, as batches wait meanwhile, and Spark takes seconds.

        The files of groups are rewritten if they are not as `group_files` says.
        """
        if name == "groups":
            table_now = newest_table(self._location / name)
            if not is_well_divided(group_files(table_now, self._cluster)):
                self.replace_groups(self.stored_rows(name).limit(0), 0)
            return
        filters = [("cluster", "=", self._cluster)]

        def write(table: DeltaTable, commit: Commit) -> None:
            table.optimize.compact(partition_filters=filters, target_size=_MIN_FILE_BYTES, **commit)

        self.table(name).change(write)

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

        Rows of a history that describe what still held then are kept (see `_SELECT_ROWS_TO_KEEP`).
        """
        name = definition.name
        end = datetime.now(timezone.utc) - timedelta(days=days)
        before = f"{definition.expires_by} < TIMESTAMP '{end.isoformat()}'"
        condition = f"cluster = {literal(self._cluster)} AND {before}"
        expired = self._spark.read.format("delta").load(self._path(name)).where(condition)
        if name not in _SELECT_ROWS_TO_KEEP:
            if count := expired.count():
                self._replace_expired(name, expired.limit(0), before)
            return count
        kept = _SELECT_ROWS_TO_KEEP[name](expired, self.stored_rows("groups"))
        count = expired.count() - kept.count()
        if count:
            self._replace_expired(name, kept, before)
        return count

    def vacuum(self, name: str) -> None:
        """Remove the data files that no version within the table's retention needs."""
        self.table(name).vacuum()

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

    def _path(self, name: str) -> str:
        return str(self._location / name)


def _addition(action: str) -> AddAction:
    """Return an action of Delta's JSON, in which paths are quoted as in URIs."""
    add = json.loads(action)["add"]
    path, values, modified = unquote(add["path"]), add["partitionValues"], add["modificationTime"]
    return AddAction(path, add["size"], values, modified, data_change=True, stats=add.get("stats"))


# --- What is kept of expired rows -------------------------------------------------------------------------------------

# Of each subject (a group's state, a member's tasks, ...) the newest of the expired events is kept, unless it describes
# an end: a group that has been Stable for a year has had no event since, and if its last ones were deleted, nobody
# could query what state it was in yesterday, or which member had a task. For a group whose row was deleted none is
# kept. For the same reason the newest of the expired topologies of a group is kept.
_SUBJECTS = {"member_joined": "member", "member_left": "member", "created": "group", "deleted": "group"}
"""Kinds of events that share a subject; every other kind is a subject by itself."""
_STATELESS = ("unsolicited_push", "log_truncated")
"""Kinds of events that change no state."""


def _events_to_keep(expired: DataFrame, groups: DataFrame) -> DataFrame:
    """Return those of the `expired` events whose state held to the end of the retention; `groups` are the kept rows."""
    from pyspark.sql import Window  # noqa: PLC0415 - only the job loads Spark
    from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

    subject = F.col("kind")
    for kind, shared in _SUBJECTS.items():
        subject = F.when(F.col("kind") == kind, shared).otherwise(subject)
    newest = Window.partitionBy("cluster", "group_id", subject, "member_id").orderBy(F.desc("at"), F.desc("offset"))
    stateful = ~F.col("kind").isin(*_STATELESS) & ~F.coalesce(F.col("void"), F.lit(False))  # noqa: FBT003 - a value
    ranked = expired.where(stateful).withColumn("_rank", F.row_number().over(newest))
    return _of_groups(ranked.where("_rank = 1 AND new IS NOT NULL"), groups).select(*expired.columns)


def _topologies_to_keep(expired: DataFrame, groups: DataFrame) -> DataFrame:
    """Return the newest of the `expired` topologies of each group; `groups` are the kept rows."""
    from pyspark.sql import Window  # noqa: PLC0415 - as above
    from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

    newest = Window.partitionBy("cluster", "group_id").orderBy(F.desc("first_seen_at"), F.desc("offset"))
    ranked = expired.withColumn("_rank", F.row_number().over(newest))
    return _of_groups(ranked.where("_rank = 1"), groups).select(*expired.columns)


def _of_groups(rows: DataFrame, groups: DataFrame) -> DataFrame:
    return rows.join(groups.select("cluster", "group_id"), ["cluster", "group_id"], "left_semi")


_SELECT_ROWS_TO_KEEP: Mapping[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "group_events": _events_to_keep,
    "topologies": _topologies_to_keep,
}
"""By table; the expired rows of any other table are all deleted."""

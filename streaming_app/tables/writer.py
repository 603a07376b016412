"""Writes the rows of a cluster into the Delta tables, and keeps the tables small.

delta-rs makes every commit. It carries the batch of its rows and the term of the job (see `fence`), and is a
conditional put in an object store. The driver writes rows that it holds directly (see `rust_table` and `group_rows`).
For a large batch, Spark's workers fold the rows and return the content of files; the driver writes and commits these.
If rows of many groups are needed, Spark reads the files of a table as Parquet.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from streaming_app.errors import JobError
from streaming_app.report import Report
from streaming_app.tables.arrow import arrow_schema
from streaming_app.tables.data_files import CLUSTER, ENCODED_DDL, EncodedFile, encode_files, write_file
from streaming_app.tables.definitions import Table, table, tables
from streaming_app.tables.expiry import Expired
from streaming_app.tables.group_files import file_paths, file_rows, group_files, is_well_divided
from streaming_app.tables.kept_table import newest_table
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import REQUESTS, describe_error
from streaming_app.tables.rust_table import Batch, Commit, RustTable
from streaming_app.tables.table_creation import prepare_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession

    from streaming_app.tables.fence import Fence

_MIN_FILE_BYTES = 32 << 20  # larger files are not compacted again, so no compaction takes longer than this needs
_SORTED_GROUPS = 10_000  # rows that Spark sorts at a time in each task


class TableWriter:
    """Writes the rows of one cluster into the tables below `location`."""

    def __init__(
        self, spark: SparkSession, location: Location | Path | str, cluster: str, fence: Fence | None = None
    ) -> None:
        """Prepare; `fence` is the job's, None outside a job."""
        self._spark = spark
        self.fence = fence
        self.location = self._location = Location.of(location)
        self.cluster = self._cluster = cluster
        self._preparing, self._has_claimed = Lock(), False

    def prepare(self, report: Report = lambda _: None) -> set[str]:
        """Create missing tables and upgrade those of older releases; return the names of the new tables.

        Raises JobError if the warehouse cannot be written, or was created by something else.
        """
        with self._preparing:  # both streams call this when they start
            new = prepare_tables(self._location, report)
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

    def check_owner(self) -> None:
        """Raise OtherOwnerError once another job writes the cluster."""
        if self.fence:
            self.fence.check_owner()

    def table(self, name: str) -> RustTable:
        """Return a table, to write rows that this process holds."""
        return RustTable(self._location / name, self._cluster, self.fence)

    def to_dataframe(self, rows: pa.Table) -> DataFrame:
        """Return `rows` as a DataFrame of this writer's session. PySpark rejects columns without chunks."""
        return self._spark.createDataFrame(rows if rows.num_rows else rows.schema.empty_table())

    def stored_rows(self, name: str) -> DataFrame:
        """Return the rows of a table's newest version. Later commits keep its files for hours."""
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        definition, location = table(name), self._location / name
        paths = [_without_globs(str(location / path)) for path in file_paths(newest_table(location), self._cluster)]
        if not paths:
            return self.to_dataframe(arrow_schema(definition.ddl).empty_table())
        in_files = ", ".join(f"{column.name} {column.type}" for column in definition.columns if column.name != CLUSTER)
        rows = self._spark.read.schema(in_files).parquet(*paths)
        return rows.withColumn(CLUSTER, F.lit(self._cluster)).select(*definition.names)

    def is_empty(self, name: str) -> bool:
        """Return whether a table has no rows of any cluster. By delta-rs: Spark takes a second to plan the query."""
        return int(newest_table(self._location / name).get_add_actions().num_rows) == 0

    def identity(self, name: str) -> str:
        """Return an id of this cluster's rows in a table: a table created again or elsewhere has another one."""
        return f"{newest_table(self._location / name).metadata().id}/{self._cluster}"

    def append(self, name: str, files: Iterable[EncodedFile], writer: str, batch_id: int) -> None:
        """Append the rows of these files to table `name` exactly once, as a batch of this writer."""
        table, batch = self.table(name), Batch([f"{writer}-{name}"], batch_id)
        if not table.holds(batch):
            table.append_files(self._write(name, files), batch)

    def last_append(self, name: str, writers: Iterable[str]) -> int:
        """Return the highest batch that these writers appended to a table; -1 if there is none."""
        table = newest_table(self._location / name)
        batches = [table.transaction_version(f"{writer}-{name}") for writer in writers]
        return max((batch for batch in batches if batch is not None), default=-1)

    def replace(self, name: str, rows: DataFrame, most: int = 0) -> None:
        """Replace the rows of this cluster, in one commit, by `rows`, which may be read from the same table.

        A file gets at most `most` rows; 0: no limit.
        """
        written = self._write(name, self._encode_files(rows, most))

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

    def _encode_files(self, rows: DataFrame, most_rows: int) -> list[EncodedFile]:
        """Let workers encode these rows; return the files, of at most `most_rows` rows each."""
        found: pa.Table = rows.mapInArrow(partial(encode_files, most_rows=most_rows), ENCODED_DDL).toArrow()
        return [EncodedFile(content, stats) for content, stats in zip(*found.to_pydict().values(), strict=True)]

    def _write(self, name: str, encoded: Iterable[EncodedFile]) -> list[AddAction]:
        """Write new files of a table; their rows are in it once the actions are committed."""
        with ThreadPoolExecutor(REQUESTS) as threads:
            return list(threads.map(partial(write_file, self._location / name, self._cluster), encoded))

    def replace_groups(self, rows: DataFrame, count: int, group_ids: Sequence[str] | None = None) -> None:
        """Replace the rows of these groups by `rows`, which has `count` rows; by default the groups in `rows`.

        Rewrites the rows of all groups, in files as `group_files` defines: nearly all files would change anyway.
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
        """Compact the small files of a table. Uses delta-rs: batches wait meanwhile, and Spark would take seconds.

        The files of `groups` are rewritten if they are not as `group_files` defines.
        """
        if name == "groups":
            table_now = newest_table(self._location / name)
            if not is_well_divided(group_files(table_now, self._cluster)):
                self.replace_groups(self.stored_rows(name).limit(0), 0)
            return
        self.table(name).compact(_MIN_FILE_BYTES)

    def clean_up_log(self, name: str) -> None:
        """Remove the log entries of versions that are older than the table's log retention."""
        self.table(name).clean_up_log()

    def delete_expired(self, definition: Table, days: float) -> int:
        """Delete the rows whose time (`definition.expires_by`) is more than `days` ago; return their number.

        History rows that still describe the state at that time are kept (see `expiry`).
        """
        own = self.table(definition.name)
        expired = Expired.find(own.open(), newest_table(self._location / "groups"), definition, own.own_rows, days)
        if expired.deleted:
            own.replace(expired.kept, expired.condition)
        return expired.deleted

    def vacuum(self, name: str) -> None:
        """Remove data files that are older than the table's retention and that no newer version needs."""
        self.table(name).vacuum()


def sorted_parts(spark: SparkSession, rows: int, most: int) -> int:
    """Return the number of parts for sorting so many rows, with not many more than `most` rows per part.

    A task sorts its whole part in the heap. With as many parts as cores (the setting of this job's own session),
    sorting took more than a third of the heap at a catch-up of 30,000 groups.
    """
    return max(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), -(-rows // most))


def _without_globs(path: str) -> str:
    """Return a path in which Spark expands no characters as patterns."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)

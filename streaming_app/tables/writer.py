"""Writes the rows of a cluster into the Delta tables, and keeps the tables small.

delta-rs makes every commit. It carries the batch of its rows and the term of the job (see `fence`), and is a
conditional put in a store, see `rust_table`; rows of groups are replaced by `group_rows`. Of a large batch the
workers of Spark fold the rows, and return them as the content of files, which this process writes and commits. Spark
reads files of a table as Parquet where rows of many groups are needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from streaming_app.errors import StorageError
from streaming_app.report import Report
from streaming_app.tables.data_files import CLUSTER
from streaming_app.tables.definitions import table, tables
from streaming_app.tables.fence import Fence
from streaming_app.tables.group_files import stored_files
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.table_creation import create_missing, existing_tables
from streaming_app.tables.upgrade import upgrade

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TableWriter:
    """Writes the rows of one cluster into the tables below `location`."""

    def __init__(
        self, spark: SparkSession, location: Location | Path | str, cluster: str, fence: Fence | None = None
    ) -> None:
        """Prepare; `fence` is the job's, None outside a job."""
        self._spark = spark
        self.fence = fence
        self.location, self.cluster = Location.of(location), cluster
        self._preparing, self._has_claimed = Lock(), False
        places = {one.name: self.location / one.name for one in tables()}
        self._tables = {name: RustTable(place, cluster, fence, is_checked=True) for name, place in places.items()}
        self.groups = GroupRows(self._tables["groups"])

    def prepare(self, report: Report = lambda _: None) -> set[str]:
        """Create missing tables, claim all, and upgrade those of the release before; return the names of new tables.

        Raises StorageError if the warehouse cannot be written, or was created by something else.
        """
        with self._preparing:  # both streams call this when they start
            existing = existing_tables(self.location)
            new = create_missing(self.location, existing)
            for one in self._tables.values():
                one.forget()
            claimed = {one.name for one in tables()} if not self._has_claimed else new
            try:
                if self.fence and claimed:
                    self.fence.claim(self.location / name for name in sorted(claimed))
                    self._has_claimed = True
                upgrade(existing, self.table, report)
            except (DeltaError, OSError) as error:
                raise StorageError(f"Cannot write the warehouse {self.location}: {describe_error(error)}") from None
            return new

    def check_owner(self) -> None:
        """Raise OtherOwnerError once another job writes the cluster."""
        if self.fence:
            self.fence.check_owner()

    def table(self, name: str) -> RustTable:
        """Return the rows of the cluster in a table."""
        return self._tables[name]

    def stored_rows(self, name: str) -> DataFrame:
        """Return the rows of a table's newest version. Later commits keep its files for hours."""
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        definition, location = table(name), self.location / name
        files = stored_files(self.table(name).open(), self.cluster)
        # Spark must expand no characters of a path as patterns.
        paths = [re.sub(r"([\\*?\[\]{}])", r"\\\1", str(location / file.path)) for file in files]
        if not paths:
            return self._spark.createDataFrame([], definition.struct)
        in_files = ", ".join(f"{column.name} {column.type}" for column in definition.columns if column.name != CLUSTER)
        rows = self._spark.read.schema(in_files).parquet(*paths)
        return rows.withColumn(CLUSTER, F.lit(self.cluster)).select(*definition.names)

    def identity(self, name: str) -> str:
        """Return an id of this cluster's rows in a table: a table created again or elsewhere has another one."""
        return f"{self.table(name).table_id()}/{self.cluster}"

    def last_append(self, name: str, writers: Iterable[str]) -> int:
        """Return the highest batch that these writers appended to a table; -1 if there is none."""
        table = self.table(name).open()
        batches = [table.transaction_version(f"{writer}-{name}") for writer in writers]
        return max((batch for batch in batches if batch is not None), default=-1)

"""Reads and writes a few rows with delta-rs, in a small part of the time that Spark takes to plan it.

delta-rs rewrites the files that hold replaced rows, while Spark leaves them and writes which of their rows are deleted.
So the rows of groups are replaced by delta-rs where that rewrites little, and by Spark otherwise.
`DeltaWriter.compact` keeps the files of this table small, and each of them with a range of group ids of its own.

A commit of delta-rs writes the rows of all files that it replaces into one file. Of files with other ranges, that file
would have a range that nearly every later batch touches. So these are replaced one by one, each in a commit of its own.
A process that dies in between has replaced some groups: the batch is repeated, and their rows skip its records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from streaming_app.tables.reader import quote
from streaming_app.tables.rust_table import Batch, RustTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streaming_app.tables.delta_writer import DeltaWriter

_REWRITTEN_BYTES = 1 << 20  # at most, for a batch: old files stay for hours, at up to a batch a second
_SMALL_TABLE_BYTES = 512 << 10  # of which all rows may be in one file
_COMMITS = 8  # at most, for a batch: each takes 0.04 to 0.07 s, and Spark a second
_SCANNED_FILES = 500  # at most, to find what a batch rewrites: reading their statistics takes 10 ms


class FileRange(NamedTuple):
    """A file of the table `groups`: the range of its group ids, None where it is not known, and its size in bytes."""

    first: str | None
    last: str | None
    size: int

    def may_hold(self, group_id: str) -> bool:
        """Return whether a row of this group may be in the file."""
        return (self.first is None or self.first <= group_id) and (self.last is None or group_id <= self.last)


class FewRowsWriter:
    """Writes a few rows of one cluster into the tables, and finds the rows of a few groups.

    What writes raises OSError in one line, and what may leave the work to Spark Spark's errors, too.
    """

    def __init__(self, writer: DeltaWriter) -> None:
        self._location, self._cluster = writer.location, writer.cluster
        self._spark_writer = writer.without_codegen()
        self._versions: dict[str, int] = {}

    def find_groups(self, column: str, values: Sequence[str]) -> pa.Table:
        """Return the stored rows of the groups that have one of `values` in `column`."""
        groups = self._table("groups").open()
        builder = QueryBuilder().register("groups", groups)
        # Most of a row is in the other columns: read those of the matching rows only.
        builder.execute("SET datafusion.execution.parquet.pushdown_filters = true")
        query = f"SELECT * FROM groups WHERE {self._condition(column, values)}"  # noqa: S608 - quoted
        schema = pa.schema(groups.schema().to_arrow())  # DataFusion returns string views, which Arrow cannot sort
        return pa.table(builder.execute(query).read_all()).select(schema.names).cast(schema)

    def append(self, name: str, rows: pa.Table, writers: Sequence[str], batch_id: int) -> None:
        """Append rows to a table exactly once as the batch of these writers."""
        batch = Batch([f"{writer}-{name}" for writer in writers], batch_id)
        self._versions[name] = self._table(name).append(rows, batch)

    def rewrite_events(self, events: pa.Table, retracted: pa.Table) -> None:
        """Replace events by others, see `DeltaWriter.rewrite_events`."""
        self._spark_writer.rewrite_events(*map(self._to_dataframe, (events, retracted)))
        self._versions.pop("group_events", None)

    def add_groups(self, rows: pa.Table) -> None:
        """Append the rows of groups that are not in the table yet."""
        self._versions["groups"] = self._table("groups").append(rows)

    def replace_groups(self, rows: pa.Table, group_ids: Sequence[str]) -> None:
        """Replace the rows of exactly these groups by `rows`, in one commit."""
        done: list[bool] = []
        version = self._table("groups").change(lambda groups: done.append(self._overwrite(groups, rows, group_ids)))
        if done[-1]:
            self._versions["groups"] = version
        else:
            self._spark_writer.replace_groups(self._to_dataframe(rows), group_ids)
            self._versions.pop("groups", None)

    def version(self, name: str) -> int:
        """Return the version of a table after the last write of this object, if it was not Spark's, or a later one."""
        if name not in self._versions:
            self._versions[name] = self._table(name).open().version()
        return self._versions[name]

    def forget_versions(self) -> None:
        """Learn that Spark has written the tables."""
        self._versions.clear()

    def _overwrite(self, groups: DeltaTable, rows: pa.Table, group_ids: Sequence[str]) -> bool:
        """Replace the rows of groups unless that rewrites too much; return whether it was done."""
        commits = _plan_commits(_files(groups, self._cluster), group_ids)
        for ids in commits:
            part = rows.filter(pc.is_in(rows["group_id"], pa.array(ids, rows.schema.field("group_id").type)))
            write_deltalake(groups, part, mode="overwrite", predicate=self._condition("group_id", ids))
        return bool(commits)

    def _condition(self, column: str, values: Sequence[str]) -> str:
        return f"cluster = {quote(self._cluster)} AND {column} IN ({', '.join(map(quote, values))})"

    def _table(self, name: str) -> RustTable:
        return RustTable(self._location / name, self._cluster)

    def _to_dataframe(self, rows: pa.Table) -> DataFrame:
        return self._spark_writer.to_dataframe(rows)


def _files(groups: DeltaTable, cluster: str) -> list[FileRange] | None:
    """Return the files with rows of a cluster; None if the table has so many that this takes long."""
    files = pa.table(groups.get_add_actions()).select(["size_bytes", "min", "max", "partition"])
    if files.num_rows > _SCANNED_FILES:
        return None
    own = (file for file in files.to_pylist() if file["partition"]["cluster"] == cluster)
    return [FileRange(file["min"].get("group_id"), file["max"].get("group_id"), file["size_bytes"]) for file in own]


def _plan_commits(files: Sequence[FileRange] | None, group_ids: Sequence[str]) -> list[list[str]]:
    """Return the groups of each commit that replaces their rows; none if it is better left to Spark.

    Groups share a commit if they can only be in one and the same file, if they are in none, or if the table is small.
    """
    if files is None:
        return []
    if sum(file.size for file in files) <= _SMALL_TABLE_BYTES:
        return [list(group_ids)]
    commits: dict[Hashable, list[str]] = defaultdict(list)
    sizes: dict[Hashable, int] = {}
    for group_id in group_ids:
        places = [place for place, file in enumerate(files) if file.may_hold(group_id)]
        key: Hashable = tuple(places) if len(places) <= 1 else group_id
        commits[key].append(group_id)
        sizes[key] = max((files[place].size for place in places), default=0)  # the row is in one of them
    is_little = len(commits) <= _COMMITS and sum(sizes.values()) <= _REWRITTEN_BYTES
    return list(commits.values()) if is_little else []

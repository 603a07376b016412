"""Reads and writes a few rows with delta-rs, in a small part of the time that Spark takes to plan it.

delta-rs rewrites the files that hold replaced rows, while Spark leaves them and writes which of their rows are deleted.
So the rows of groups are replaced by delta-rs where that rewrites little, and by Spark otherwise.
`DeltaWriter.compact` keeps the files of this table small, and each of them with a range of group ids of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from streaming_app.tables.reader import quote
from streaming_app.tables.table_locks import writing

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

    from streaming_app.tables.delta_writer import DeltaWriter
    from streaming_app.tables.location import Location

_REWRITTEN_BYTES = 512 << 10  # at most, in a commit: old files stay for hours, at up to a commit a second
_SCANNED_FILES = 500  # at most, to find those: reading their statistics takes 10 ms
_T = TypeVar("_T")


class FewRowsWriter:
    """Writes a few rows of one cluster into the tables, and finds the rows of a few groups.

    Every method raises delta-rs' errors, and those that may leave the work to Spark raise Spark's, too.
    """

    def __init__(self, writer: DeltaWriter) -> None:
        self._location, self._cluster = writer.location, writer.cluster
        self._spark_writer = writer.without_codegen()
        self._versions: dict[str, int] = {}

    def find_groups(self, column: str, values: Sequence[str]) -> pa.Table:
        """Return the stored rows of the groups that have one of `values` in `column`."""
        import pyarrow as pa  # noqa: PLC0415 - Spark's workers import this module, and need none of these
        from deltalake import QueryBuilder  # noqa: PLC0415 - as above

        groups = self._open("groups")
        builder = QueryBuilder().register("groups", groups)
        # Most of a row is in the other columns: read those of the matching rows only.
        builder.execute("SET datafusion.execution.parquet.pushdown_filters = true")
        query = f"SELECT * FROM groups WHERE {self._condition(column, values)}"  # noqa: S608 - quoted
        schema = pa.schema(groups.schema().to_arrow())  # DataFusion returns string views, which Arrow cannot sort
        return pa.table(builder.execute(query).read_all()).select(schema.names).cast(schema)

    def append(self, name: str, rows: pa.Table, writers: Sequence[str], batch_id: int) -> None:
        """Append rows to a table exactly once as the batch of these writers, see `append_once`."""
        app_ids = [f"{writer}-{name}" for writer in writers]
        self._versions[name] = append_once(self._location / name, rows, app_ids, batch_id)

    def rewrite_events(self, events: pa.Table, retracted: pa.Table) -> None:
        """Replace events by others, see `DeltaWriter.rewrite_events`."""
        self._spark_writer.rewrite_events(*map(self._to_dataframe, (events, retracted)))
        self._versions.pop("group_events", None)

    def add_groups(self, rows: pa.Table) -> None:
        """Append the rows of groups that are not in the table yet."""
        from deltalake import write_deltalake  # noqa: PLC0415 - as above

        groups = self._open("groups")
        write_deltalake(groups, rows, mode="append")
        self._versions["groups"] = groups.version()

    def replace_groups(self, rows: pa.Table, group_ids: Sequence[str]) -> None:
        """Replace the rows of exactly these groups by `rows`, in one commit."""
        if not _retry_conflicts(lambda: self._overwrite_groups(rows, group_ids)):
            self._spark_writer.replace_groups(self._to_dataframe(rows), group_ids)
            self._versions.pop("groups", None)

    def version(self, name: str) -> int:
        """Return the version of a table after the last write of this object, if it was not Spark's, or a later one."""
        if name not in self._versions:
            self._versions[name] = self._open(name).version()
        return self._versions[name]

    def forget_versions(self) -> None:
        """Learn that Spark has written the tables."""
        self._versions.clear()

    def _overwrite_groups(self, rows: pa.Table, group_ids: Sequence[str]) -> bool:
        """Replace the rows of groups unless that rewrites too much; return whether it was done."""
        from deltalake import write_deltalake  # noqa: PLC0415 - as above

        groups = self._open("groups")
        if not _may_rewrite(groups, self._cluster, group_ids):
            return False
        write_deltalake(groups, rows, mode="overwrite", predicate=self._condition("group_id", group_ids))
        self._versions["groups"] = groups.version()
        return True

    def _condition(self, column: str, values: Sequence[str]) -> str:
        return f"cluster = {quote(self._cluster)} AND {column} IN ({', '.join(map(quote, values))})"

    def _open(self, name: str) -> DeltaTable:
        """Open a table. To write by its path would create one that was deleted meanwhile."""
        return (self._location / name).delta_table()

    def _to_dataframe(self, rows: pa.Table) -> DataFrame:
        return self._spark_writer.to_dataframe(rows)


def append_once(location: Location, rows: pa.Table, app_ids: Sequence[str], batch_id: int) -> int:
    """Append rows to a table unless it has got this or a later batch of the first app id; return the table's version.

    Delta keeps the batch in its log, with the rows, for each of the app ids. Raises delta-rs' errors.
    """
    from deltalake import CommitProperties, Transaction, write_deltalake  # noqa: PLC0415 - as above

    def write() -> int:
        target = location.delta_table()
        written = target.transaction_version(app_ids[0])
        if written is None or written < batch_id:
            properties = CommitProperties(app_transactions=[Transaction(one, batch_id) for one in app_ids])
            write_deltalake(target, rows, mode="append", commit_properties=properties)
        return target.version()

    with writing(location):
        return _retry_conflicts(write)


def _retry_conflicts(write: Callable[[], _T]) -> _T:
    """Do a write again when another process has changed the table meanwhile."""
    from deltalake.exceptions import CommitFailedError  # noqa: PLC0415 - as above

    again = retry_if_exception_type(CommitFailedError)
    return Retrying(retry=again, stop=stop_after_attempt(5), wait=wait_fixed(0.2), reraise=True)(write)


def _may_rewrite(groups: DeltaTable, cluster: str, group_ids: Sequence[str]) -> bool:
    """Return whether the files that may hold rows of these groups are few and small."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    files = pa.table(groups.get_add_actions()).select(["size_bytes", "min", "max", "partition"])
    if files.num_rows > _SCANNED_FILES:
        return False
    touched = 0
    for file in files.to_pylist():
        first, last = (file[one].get("group_id") for one in ("min", "max"))
        is_own = file["partition"]["cluster"] == cluster
        if is_own and any((first is None or first <= one) and (last is None or one <= last) for one in group_ids):
            touched += file["size_bytes"]
    return touched <= _REWRITTEN_BYTES

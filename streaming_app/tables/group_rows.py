"""Finds the rows of groups by their ids, and replaces them.

Theory of operation
-------------------
The files of the table have ranges of group ids (see `group_files`). To replace the rows of some groups, one commit
rewrites their files, a few at a time. A new group goes into the file whose range is next to its id. A file that becomes
too large is divided.

If the groups of a batch come from the whole range, the batch rewrites one file per group, and the files determine its
duration. Both to find rows and to replace them, pyarrow reads each file once and in full, in a few threads: a query
would take twice as long. Files that are large or have another schema than the table are read with a query.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.transaction import AddAction, RemoveAction

from streaming_app.tables.data_files import CLUSTER, encode_file, write_file
from streaming_app.tables.definitions import table
from streaming_app.tables.driver_limits import GROUPS, fits_driver
from streaming_app.tables.group_files import GroupFile, Span, file_rows, group_files, spans_of
from streaming_app.tables.object_store import REQUESTS, read_file
from streaming_app.tables.reader import quote
from streaming_app.tables.rust_table import Batch, Commit, RustTable

if TYPE_CHECKING:
    from streaming_app.tables.writer import TableWriter

_FILE_BYTES = 4 << 20  # of Arrow, the limit of a file with large rows
_AT_A_TIME = 4 << 20  # bytes of files that are read and written together; as Arrow they take up to 30 times as much
_KEPT_BYTES = 48 << 20  # of Arrow: files that were read to find rows stay in memory until the rows are replaced
_PIECES = 50  # of the rows of a file: with more pieces, writing takes longer than a copy would
_NAME = "groups"


class _Change(NamedTuple):
    span: Span
    group_ids: Sequence[str]
    """Ids of the rows to replace in the span, sorted."""
    rows: pa.Table
    """The new rows, sorted by group id."""


class _OtherFormatError(Exception):
    """Only a query can read the file: it is large, or has another format than the table."""


class GroupRows:
    """Finds the rows of groups of one cluster, and writes them together with a few rows of their history.

    Methods that write raise OSError in one line; methods that may use Spark also raise Spark's errors.
    """

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer
        self._versions: dict[str, int] = {}
        self._kept: Mapping[str, pa.Table] = {}  # see `_Files`; from finding rows until replacing them

    def find(self, column: str, values: Sequence[str]) -> pa.Table:
        """Return the stored rows of the groups whose `column` has one of `values`."""
        own = self._table(_NAME)
        groups = own.open()
        if column == "group_id":
            files = _Files(groups, own)
            spans = _touched(spans_of(group_files(groups, own.cluster)), values)
            found = files.find([file for span in spans for file in span.files], values)
            self._kept = files.kept
            if found is not None:
                return found
        named = ", ".join(map(quote, values)) or "NULL"  # no values if no key of the batch names a group
        return _select(groups, f"{own.own_rows} AND {column} IN ({named})")

    def replace(self, rows: pa.Table, group_ids: Sequence[str]) -> None:
        """Replace the rows of exactly these groups by `rows`, in one commit."""
        own, left = self._table(_NAME), []
        kept, self._kept = self._kept, {}

        def write(groups: DeltaTable, commit: Commit) -> None:
            files = group_files(groups, own.cluster)
            spans = _touched(spans_of(files), group_ids)
            touched = [file for span in spans for file in span.files]
            size, count = sum(file.size for file in touched), sum(file.rows for file in touched)
            left.append(not fits_driver(GROUPS, rewritten=size, rewritten_rows=count))
            if not left[-1]:
                changes = list(_changes(spans, _conform(rows, _schema(groups)).sort_by("group_id"), group_ids))
                written = _rewrite(_Files(groups, own, kept), changes, file_rows(files))
                removed = [_remove(own, file) for file in touched]
                groups.create_write_transaction([*removed, *written], "append", groups.schema(), ["cluster"], **commit)
                groups.update_incremental()

        version = own.change(write)
        if left[-1]:
            self._writer.replace_groups(self._writer.to_dataframe(rows), rows.num_rows, group_ids)
            self._versions.pop(_NAME, None)
        else:
            self._versions[_NAME] = version

    def append(self, name: str, rows: pa.Table, writers: Sequence[str], batch_id: int) -> None:
        """Append rows to a history table exactly once, as the batch of these writers."""
        batch = Batch([f"{writer}-{name}" for writer in writers], batch_id)
        self._versions[name] = self._table(name).append(rows, batch)

    def delete_history(self, name: str, rows: pa.Table) -> None:
        """Delete the rows of a history table that have the same keys as these rows."""
        unknown = pa.nulls(rows.num_rows, rows.schema.field("log_epoch").type)  # older releases wrote null
        place = rows.schema.get_field_index("log_epoch")
        rows = pa.concat_tables([rows, rows.set_column(place, "log_epoch", unknown)])
        self._versions[name] = self._table(name).delete_rows(rows, table(name).key)

    def version(self, name: str) -> int:
        """Return the version of a table after this object's last write, or a later one; Spark's writes do not count."""
        if name not in self._versions:
            self._versions[name] = self._table(name).open().version()
        return self._versions[name]

    def forget_versions(self) -> None:
        """Forget the versions, after Spark has written the tables."""
        self._versions.clear()

    def _table(self, name: str) -> RustTable:
        return self._writer.table(name)


def _touched(spans: Sequence[Span], group_ids: Iterable[str]) -> list[Span]:
    """Return the spans that hold these groups or are next to them, each with the range of all its groups."""
    firsts = [span.first or "" for span in spans]
    ids: defaultdict[int, list[str]] = defaultdict(list)
    for group_id in group_ids:
        ids[max(0, bisect_right(firsts, group_id) - 1)].append(group_id)
    return [
        Span(
            None if spans[place].first is None else min(firsts[place], *own),
            None if (last := spans[place].last) is None else max(last, *own),
            spans[place].files,
        )
        if spans
        else Span(min(own), max(own), ())
        for place, own in sorted(ids.items())
    ]


class _Files:
    """Reads files of the table at the version that was opened; may be used from several threads."""

    def __init__(self, groups: DeltaTable, own: RustTable, kept: Mapping[str, pa.Table] | None = None) -> None:
        """Take the table, and the files that were read before: a file never changes."""
        self._groups, self.own = groups, own
        self._schema = _schema(groups)
        self._has_features = groups.protocol().min_reader_version > 1
        self.kept: dict[str, pa.Table] = dict(kept or {})
        """The rows of files that will probably be read again, by path."""
        self._kept_bytes = 0

    def find(self, files: Sequence[GroupFile], group_ids: Iterable[str]) -> pa.Table | None:
        """Return the rows of these groups in these files, and keep the files if they are few.

        Returns None if only a query can read the files.
        """
        wanted = pa.array(set(group_ids), pa.string())

        def read(file: GroupFile) -> pa.Table:
            rows = self._rows(file)
            size = rows.get_total_buffer_size()
            if self._kept_bytes + size <= _KEPT_BYTES:
                self._kept_bytes += size
                self.kept[file.path] = rows
            return rows.filter(pc.is_in(rows["group_id"], wanted))

        try:
            with ThreadPoolExecutor(REQUESTS) as threads:
                return pa.concat_tables([self._schema.empty_table(), *threads.map(read, files)])
        except _OtherFormatError:
            return None

    def rows(self, span: Span) -> pa.Table:
        """Return the rows of a span, sorted by group id."""
        try:
            rows = pa.concat_tables(map(self._rows, span.files)) if span.files else self._schema.empty_table()
        except _OtherFormatError:
            rows = _select(self._groups, f"{self.own.own_rows} AND {_condition(span)}")
        ids = rows["group_id"].to_pylist()
        return rows if all(one <= other for one, other in pairwise(ids)) else rows.sort_by("group_id")

    def _rows(self, file: GroupFile) -> pa.Table:
        if (kept := self.kept.get(file.path)) is not None:
            return kept
        if self._has_features or file.size > _AT_A_TIME:
            raise _OtherFormatError
        try:
            rows = pq.ParquetFile(pa.BufferReader(read_file(self._groups, file.path, file.size))).read(
                use_threads=False
            )
            cluster = pa.array([self.own.cluster], pa.string()).take(pa.array([0] * rows.num_rows))
            return _conform(rows.append_column("cluster", cluster), self._schema)
        except (pa.ArrowException, KeyError):
            raise _OtherFormatError from None


def _rewrite(files: _Files, changes: Sequence[_Change], most: int) -> list[AddAction]:
    """Write the new files of these spans: the rows of unchanged groups, and the new rows."""

    def write(change: _Change) -> list[AddAction]:
        rows = _merge(files.rows(change.span), change)
        own = files.own
        return [write_file(own.location, own.cluster, encode_file(part)) for part in _divide(rows, most)]

    written = list[AddAction]()
    with ThreadPoolExecutor(REQUESTS) as threads:
        for some in _together(changes):
            written += chain.from_iterable(threads.map(write, some))
    return written


def _changes(spans: Sequence[Span], rows: pa.Table, group_ids: Iterable[str]) -> Iterator[_Change]:
    """Yield the changes of each span."""
    ids, new_ids = sorted(set(group_ids)), rows["group_id"].to_pylist()
    end = new_end = 0
    for span in spans:
        start, new_start = end, new_end
        end, new_end = _end(ids, span), _end(new_ids, span)
        yield _Change(span, ids[start:end], rows.slice(new_start, new_end - new_start))


def _end(ids: Sequence[str], span: Span) -> int:
    """Return how many of these sorted ids are in this span or before it."""
    return len(ids) if span.last is None else bisect_right(ids, span.last)


def _together(changes: Sequence[_Change]) -> Iterator[Sequence[_Change]]:
    """Divide the changes into parts; the files of a part are read and written together."""
    start = size = 0
    for place, change in enumerate(changes):
        own = sum(file.size for file in change.span.files)
        if size and size + own > _AT_A_TIME:
            yield changes[start:place]
            start, size = place, 0
        size += own
    if changes:
        yield changes[start:]


def _merge(stored: pa.Table, change: _Change) -> pa.Table:
    """Return the new rows of a span, sorted, in pieces: a copy would take as long as reading them."""
    ids, new_ids = stored["group_id"].to_pylist(), change.rows["group_id"].to_pylist()
    pieces, place, new = [], 0, 0
    for group_id in change.group_ids:
        end, new_end = bisect_left(ids, group_id, place), bisect_right(new_ids, group_id, new)
        pieces += [stored.slice(place, end - place), change.rows.slice(new, new_end - new)]
        place, new = bisect_right(ids, group_id, end), new_end
    merged = pa.concat_tables([*pieces, stored.slice(place)])
    return merged.combine_chunks() if len(pieces) > _PIECES else merged


def _divide(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Yield the rows in parts of about equal size, none too large for a file."""
    if rows.num_rows:
        count = max(-(-rows.num_rows // most), min(rows.num_rows, -(-rows.nbytes // _FILE_BYTES)))
        size = -(-rows.num_rows // count)
        yield from (rows.slice(start, size) for start in range(0, rows.num_rows, size))


def _remove(own: RustTable, file: GroupFile) -> RemoveAction:
    now = int(time.time() * 1000)
    of: dict[str, str | None] = {CLUSTER: own.cluster}
    return RemoveAction(file.path, data_change=True, deletion_timestamp=now, size=file.size, partition_values=of)


def _condition(span: Span) -> str:
    first = "true" if span.first is None else f"group_id >= {quote(span.first)}"
    last = "true" if span.last is None else f"group_id <= {quote(span.last)}"
    return f"({first} AND {last})"


def _schema(groups: DeltaTable) -> pa.Schema:
    return pa.schema(groups.schema().to_arrow())


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the types of this schema: DataFusion returns string views, which Arrow cannot sort."""
    return rows.select(schema.names).cast(schema)


def _select(groups: DeltaTable, condition: str) -> pa.Table:
    builder = QueryBuilder().register("groups", groups)
    # Most bytes of a row are in the other columns: read those for the matching rows only.
    builder.execute("SET datafusion.execution.parquet.pushdown_filters = true")
    found = builder.execute(f"SELECT * FROM groups WHERE {condition}").read_all()  # noqa: S608 - quoted
    return _conform(pa.table(found), _schema(groups))

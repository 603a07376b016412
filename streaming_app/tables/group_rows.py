"""Finds the rows of groups by their ids, and replaces them.

Theory of operation
-------------------
The files of the table have ranges of group ids (see `group_files`). To replace the rows of some groups, one commit
rewrites their files. A new group goes into the file whose range is next to its id. A file that becomes too large is
divided.

If the groups of a batch come from the whole range, the batch rewrites one file per group, and the files determine its
duration. Both to find rows and to replace them, pyarrow reads each file once and in full, in a few threads. A query
reads files that have another schema than the table. However many groups change, each thread has some thousand rows at
a time. Where ranges overlap, and their files are too large for that, these files are compacted first: a query sorts
their rows, with temporary files.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from deltalake.transaction import AddAction

from streaming_app.tables.data_files import CLUSTER, StoredFile, decode_file, encode_file, remove_action, write_file
from streaming_app.tables.group_files import Span, file_rows, group_files, is_well_divided, ranges, spans_of
from streaming_app.tables.object_store import REQUESTS, read_file
from streaming_app.tables.reader import query_bounded, quote
from streaming_app.tables.rust_table import CommitOptions, RustTable
from streaming_app.tables.table_files import TableFiles
from streaming_app.threads import in_parallel

_FILE_BYTES = 4 << 20  # of Arrow, the limit of a file with large rows
_AT_A_TIME = 4 << 20  # bytes of files that a thread rewrites together; as Arrow they take up to 30 times as much
_COMPACTED_BYTES = 1 << 20  # of neighbouring files that are compacted together
_KEPT_BYTES = 48 << 20  # of Arrow: files that were read to find rows stay in memory until the rows are replaced
_CHANGED = 1_000  # groups that a thread replaces together
_RUNS = 20  # of rows that stay together: with more, copying all costs less

_Rewritten = tuple[Sequence[StoredFile], Sequence[AddAction]]
"""Files to remove, and the files that take their place."""


class _Change(NamedTuple):
    """Groups to replace in a span; in one with very many, a part of its range."""

    span: Span
    group_ids: Sequence[str]
    """Sorted."""
    first: str | None
    """Stored rows of lower ids are not of the part; None: it has the lowest ids of the span."""
    end: str | None
    """Nor are those of this id and of higher ones; None: it has the highest ids of the span."""


class _OtherFormatError(Exception):
    """Only a query can read the file: it is large, or has another format than the table."""


class GroupRows:
    """The rows of one cluster in the table `groups`. Methods that write raise OSError in one line."""

    def __init__(self, own: RustTable) -> None:
        self._own = own
        self._kept: Mapping[str, pa.Table] = {}  # see `_Files`; from finding rows until replacing them

    def find(self, column: str, values: Sequence[str]) -> pa.Table:
        """Return the stored rows of the groups whose `column` has one of `values`."""
        groups = self._own.open()
        if column == "group_id":
            files = _Files(groups, self._own)
            spans = _touched(spans_of(group_files(groups, self._own.cluster)), values)
            found = files.find([file for span in spans for file in span.files], values)
            self._kept = files.kept
            if found is not None:
                return found
        named = ", ".join(map(quote, values)) or "NULL"  # no values if no key of the batch names a group
        return _select(groups, f"{self._own.own_rows} AND {column} IN ({named})")

    def replace(self, rows: pa.Table, group_ids: Iterable[str]) -> None:
        """Replace the rows of exactly these groups by `rows`, in one commit; another one may divide files before."""
        kept, self._kept = self._kept, {}
        ids, large = sorted(set(group_ids)), list[Span]()

        def rewrite(groups: DeltaTable, files: Sequence[StoredFile]) -> _Rewritten:
            spans, read = _touched(spans_of(files), ids), _Files(groups, self._own, kept)
            most = file_rows(sum(file.rows for file in files))
            if not large and any(map(_is_large, spans)):
                large.extend(filter(_is_large, spans))
                return self._divide(groups, files, large)
            new = _NewRows(_conform(rows, _schema(groups)))

            def write(change: _Change) -> Iterable[AddAction]:
                return self._write(_merge(read.rows(change.span), change, new), most)

            written = chain.from_iterable(in_parallel(write, _changes(spans, ids), REQUESTS))
            return [file for span in spans for file in span.files], list(written)

        self._replace_files(rewrite)
        if large:  # which are divided now
            self._replace_files(rewrite)

    def compact(self, current: TableFiles) -> None:
        """Give the files ranges of their own, and merge small ones, unless they are as they should be."""
        files = group_files(current.table, self._own.cluster)
        if not is_well_divided(files):
            spans = (span for span in ranges(files, _COMPACTED_BYTES) if len(span.files) > 1)
            removed, added = self._divide(current.table, files, spans)
            current.replace(removed, added)

    def _divide(self, groups: DeltaTable, files: Sequence[StoredFile], spans: Iterable[Span]) -> _Rewritten:
        """Write the rows of these spans, each into files with ranges of their own."""
        divided, read, most = [*spans], _Files(groups, self._own), file_rows(sum(file.rows for file in files))

        def write(span: Span) -> list[AddAction]:
            return [one for rows in read.sorted_rows(span) for one in self._write(rows, most)]

        written = list(chain.from_iterable(in_parallel(write, divided, REQUESTS)))
        return [file for span in divided for file in span.files], written

    def _write(self, rows: pa.Table, most: int) -> list[AddAction]:
        if not rows.num_rows:
            return []
        count = max(-(-rows.num_rows // most), min(rows.num_rows, -(-rows.nbytes // _FILE_BYTES)))
        size = -(-rows.num_rows // count)
        parts = (rows.slice(start, size) for start in range(0, rows.num_rows, size))
        return [write_file(self._own.location, self._own.cluster, encode_file(part)) for part in parts]

    def _replace_files(self, rewrite: Callable[[DeltaTable, Sequence[StoredFile]], _Rewritten]) -> None:
        """Commit what `rewrite` returns. It is not called again where only files of other clusters have changed."""
        known: tuple[Sequence[StoredFile], _Rewritten] | None = None

        def write(groups: DeltaTable, commit: CommitOptions) -> None:
            nonlocal known
            files = group_files(groups, self._own.cluster)
            if known is None or known[0] != files:
                known = files, rewrite(groups, files)
            removed, added = known[1]
            if removed or added:
                gone = [remove_action(self._own.cluster, file) for file in removed]
                groups.create_write_transaction([*gone, *added], "append", groups.schema(), [CLUSTER], **commit)
                groups.update_incremental()

        self._own.change(write)


class _NewRows:
    """New rows by group id."""

    def __init__(self, rows: pa.Table) -> None:
        self._schema = rows.schema
        ordered = (batch.take(pc.sort_indices(batch["group_id"])) for batch in rows.to_batches())
        self._parts = [(part["group_id"].to_pylist(), part) for part in ordered]

    def between(self, first: str, last: str) -> pa.Table:
        """Return the rows from one group id to another one, in any order, without a copy of them."""
        found = ((bisect_left(ids, first), bisect_right(ids, last), part) for ids, part in self._parts)
        parts = [part.slice(start, end - start) for start, end, part in found if start < end]
        return pa.Table.from_batches(parts, self._schema)


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


def _is_large(span: Span) -> bool:
    """Return whether the files of a span are more than a thread reads at a time; one row may be as large."""
    return sum(file.size for file in span.files) > _AT_A_TIME and sum(file.rows for file in span.files) > 1


class _Files:
    """Reads files of the table at the version that was opened; may be used from several threads."""

    def __init__(self, groups: DeltaTable, own: RustTable, kept: Mapping[str, pa.Table] | None = None) -> None:
        """Take the table, and the files that were read before: a file never changes."""
        self._groups, self._own = groups, own
        self._schema = _schema(groups)
        self._has_features = groups.protocol().min_reader_version > 1
        self.kept: dict[str, pa.Table] = dict(kept or {})
        """The rows of files that will probably be read again, by path."""
        self._kept_bytes = 0

    def find(self, files: Sequence[StoredFile], group_ids: Iterable[str]) -> pa.Table | None:
        """Return the rows of these groups in these files, and keep the files if they are few.

        Returns None if only a query can read the files.
        """
        wanted = pa.array(set(group_ids), pa.string())

        def read(file: StoredFile) -> pa.Table:
            rows = self._rows(file)
            size = rows.get_total_buffer_size()
            if self._kept_bytes + size <= _KEPT_BYTES:
                self._kept_bytes += size
                self.kept[file.path] = rows
            return rows.filter(pc.is_in(rows["group_id"], wanted))

        try:
            return pa.concat_tables([self._schema.empty_table(), *in_parallel(read, files, REQUESTS)])
        except _OtherFormatError:
            return None

    def rows(self, span: Span) -> pa.Table:
        """Return the rows of a span, in any order."""
        try:
            return pa.concat_tables([*map(self._rows, span.files)] or [self._schema.empty_table()])
        except _OtherFormatError:
            return _select(self._groups, f"{self._own.own_rows} AND {span.condition}")

    def sorted_rows(self, span: Span) -> Iterator[pa.Table]:
        """Yield the rows of a span, sorted by group id; some at a time if they are many."""
        if not _is_large(span):
            yield self.rows(span).combine_chunks().sort_by("group_id")
            return
        where = f"{self._own.own_rows} AND {span.condition}"
        query = f"SELECT * FROM groups WHERE {where} ORDER BY group_id"  # noqa: S608 - quoted
        for batch in query_bounded(query, groups=self._groups):
            yield _conform(pa.Table.from_batches([batch]), self._schema)

    def _rows(self, file: StoredFile) -> pa.Table:
        if (kept := self.kept.get(file.path)) is not None:
            return kept
        if self._has_features or file.size > _AT_A_TIME:
            raise _OtherFormatError
        try:
            return decode_file(read_file(self._groups, file.path, file.size), self._own.cluster, self._schema)
        except (pa.ArrowException, KeyError):
            raise _OtherFormatError from None


def _changes(spans: Sequence[Span], group_ids: Sequence[str]) -> Iterator[_Change]:
    end = 0
    for span in spans:
        start, end = end, len(group_ids) if span.last is None else bisect_right(group_ids, span.last)
        parts = [group_ids[one : min(one + _CHANGED, end)] for one in range(start, end, _CHANGED)]
        bounds = [None, *(part[0] for part in parts[1:]), None]
        for part, (first, stop) in zip(parts, pairwise(bounds), strict=True):
            yield _Change(span, part, first, stop)


def _merge(stored: pa.Table, change: _Change, new: _NewRows) -> pa.Table:
    """Return the rows that the span, or the part of it, has after a change, sorted."""
    rows, replaced = new.between(change.group_ids[0], change.group_ids[-1]), set(change.group_ids)
    both = pa.concat_tables([stored, rows])
    ids, first, end = both["group_id"].to_pylist(), change.first or "", change.end
    kept = [
        row
        for row, group_id in enumerate(ids)
        if row >= stored.num_rows
        or (group_id not in replaced and first <= group_id and (end is None or group_id < end))
    ]
    kept.sort(key=ids.__getitem__)
    # Rows that stay together are not copied one by one.
    starts = [place for place, row in enumerate(kept) if not place or row != kept[place - 1] + 1]
    if len(starts) > _RUNS:
        return both.combine_chunks().take(pa.array(kept, pa.int64()))
    parts = [both.slice(kept[start], end - start) for start, end in pairwise([*starts, len(kept)])]
    return pa.concat_tables(parts or [both.slice(0, 0)])


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

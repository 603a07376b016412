"""The rows of groups: found by their ids, and replaced by delta-rs or by Spark, see `which_writer`.

Theory of operation
-------------------
The files of the table have ranges of group ids, see `group_files`. The rows of some groups are replaced by rewriting
the files that hold them, a few at a time, in one commit. A new group goes into the file whose range is next to its id;
a file that becomes too large is divided.
"""

from __future__ import annotations

import json
import time
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, QueryBuilder
from deltalake.transaction import AddAction, RemoveAction

from streaming_app.tables.definitions import table
from streaming_app.tables.group_files import GroupFile, Span, file_rows, group_files, spans_of
from streaming_app.tables.reader import quote
from streaming_app.tables.rust_table import Batch, RustTable
from streaming_app.tables.which_writer import GROUPS, by_delta_rs

if TYPE_CHECKING:
    from streaming_app.tables.spark_writer import SparkWriter

_FILE_BYTES = 4 << 20  # of Arrow, if rows are large
_AT_A_TIME = 4 << 20  # bytes of files that are read and written together: as Arrow they have up to 30 times as many
_NAME = "groups"


class _Change(NamedTuple):
    rows: pa.Table
    group_ids: Sequence[str]
    """Of the rows that are replaced."""
    file_rows: int
    """How many rows a file may have."""


class GroupRows:
    """Writes the rows of groups of one cluster and a few rows of their history, and finds the rows of a few groups.

    What writes raises OSError in one line, and what may leave the work to Spark Spark's errors, too.
    """

    def __init__(self, writer: SparkWriter) -> None:
        self._writer = writer
        self._versions: dict[str, int] = {}

    def find(self, column: str, values: Sequence[str]) -> pa.Table:
        """Return the stored rows of the groups that have one of `values` in `column`."""
        own = self._table(_NAME)
        named = ", ".join(map(quote, values)) or "NULL"  # of a batch whose keys name no group, there is none
        return _select(own.open(), f"{own.own_rows} AND {column} IN ({named})")

    def replace(self, rows: pa.Table, group_ids: Sequence[str]) -> None:
        """Replace the rows of exactly these groups by `rows`, in one commit."""
        own, left = self._table(_NAME), []

        def write(groups: DeltaTable, commit: CommitProperties) -> None:
            files = group_files(groups, own.cluster)
            spans = _touched(spans_of(files), group_ids)
            touched = [file for span in spans for file in span.files]
            size, count = sum(file.size for file in touched), sum(file.rows for file in touched)
            left.append(not by_delta_rs(GROUPS, rewritten=size, rewritten_rows=count))
            if not left[-1]:
                _rewrite(groups, own, spans, _Change(rows, group_ids, file_rows(files)), commit)

        version = own.change(write)
        if left[-1]:
            self._writer.replace_groups(self._writer.to_dataframe(rows), group_ids)
            self._versions.pop(_NAME, None)
        else:
            self._versions[_NAME] = version

    def append(self, name: str, rows: pa.Table, writers: Sequence[str], batch_id: int) -> None:
        """Append rows to a table of the history exactly once as the batch of these writers."""
        batch = Batch([f"{writer}-{name}" for writer in writers], batch_id)
        self._versions[name] = self._table(name).append(rows, batch)

    def delete_history(self, name: str, rows: pa.Table) -> None:
        """Delete from a table of the history the rows that have the keys of these."""
        unknown = pa.nulls(rows.num_rows, rows.schema.field("log_epoch").type)  # in rows of older releases
        place = rows.schema.get_field_index("log_epoch")
        rows = pa.concat_tables([rows, rows.set_column(place, "log_epoch", unknown)])
        self._versions[name] = self._table(name).delete_rows(rows, table(name).key)

    def version(self, name: str) -> int:
        """Return the version of a table after the last write of this object, if it was not Spark's, or a later one."""
        if name not in self._versions:
            self._versions[name] = self._table(name).open().version()
        return self._versions[name]

    def forget_versions(self) -> None:
        """Learn that Spark has written the tables."""
        self._versions.clear()

    def _table(self, name: str) -> RustTable:
        return self._writer.table(name)


def _touched(spans: Sequence[Span], group_ids: Iterable[str]) -> list[Span]:
    """Return the spans that hold these groups, or are next to them; each with the range of all its groups."""
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


def _rewrite(
    groups: DeltaTable, own: RustTable, spans: Sequence[Span], change: _Change, commit: CommitProperties
) -> None:
    """Replace the files of these spans by others: without the rows of the changed groups, and with the new rows."""
    removed = [_remove(own, file) for span in spans for file in span.files]
    written, rows, end = list[AddAction](), change.rows.sort_by("group_id"), 0
    ids = rows["group_id"].to_pylist()
    for some in _together(spans):
        start, end = end, _end(ids, some[-1])
        after = _after(groups, own, some, change._replace(rows=rows.slice(start, end - start)))
        written += [_write_file(own, part) for part in _parts(after, some, change.file_rows)]
    groups.create_write_transaction(
        [*removed, *written], "append", groups.schema(), ["cluster"], commit_properties=commit
    )
    groups.update_incremental()


def _together(spans: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """Yield the spans that are rewritten at a time."""
    start = size = 0
    for place, span in enumerate(spans):
        own = sum(file.size for file in span.files)
        if size and size + own > _AT_A_TIME:
            yield spans[start:place]
            start, size = place, 0
        size += own
    if spans:
        yield spans[start:]


def _end(ids: Sequence[str], span: Span) -> int:
    """Return how many of these ids, which are sorted, are in this span or before it."""
    return len(ids) if span.last is None else bisect_right(ids, span.last)


def _after(groups: DeltaTable, own: RustTable, spans: Sequence[Span], change: _Change) -> pa.Table:
    """Return the rows of these spans as they will be, sorted by group id as those of the change are."""
    ranges = [_condition(span) for span in spans if span.files]
    if not ranges:
        return change.rows
    stored = _select(groups, f"{own.own_rows} AND ({' OR '.join(ranges)})")
    changed = pa.array(change.group_ids, stored.schema.field("group_id").type)
    kept = stored.filter(pc.invert(pc.is_in(stored["group_id"], changed)))
    return pa.concat_tables([kept, change.rows.select(stored.column_names).cast(stored.schema)]).sort_by("group_id")


def _parts(rows: pa.Table, spans: Sequence[Span], most: int) -> Iterator[pa.Table]:
    """Yield the rows of each file; none has rows of two spans, as others may be in between."""
    ids, end = rows["group_id"].to_pylist(), 0
    for span in spans:
        start, end = end, _end(ids, span)
        yield from _divide(rows.slice(start, end - start), most)


def _divide(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Yield the rows in parts of about the same size, none of which is too large for a file."""
    if rows.num_rows:
        count = max(-(-rows.num_rows // most), min(rows.num_rows, -(-rows.nbytes // _FILE_BYTES)))
        size = -(-rows.num_rows // count)
        yield from (rows.slice(start, size) for start in range(0, rows.num_rows, size))


def _remove(own: RustTable, file: GroupFile) -> RemoveAction:
    return RemoveAction(
        file.path, data_change=True, deletion_timestamp=_now(), size=file.size, partition_values=_of(own)
    )


def _write_file(own: RustTable, rows: pa.Table) -> AddAction:
    """Write a file with these rows, which are sorted; it is in the table once its action is committed."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows.drop_columns(["cluster"]), sink, compression="snappy", write_statistics=["group_id"])
    content, name = sink.getvalue().to_pybytes(), f"part-{uuid.uuid4()}.snappy.parquet"
    (own.location / name).write_bytes(content)
    first, last = (rows["group_id"][place].as_py() for place in (0, -1))
    statistics = {
        "numRecords": rows.num_rows,
        "minValues": {"group_id": first},
        "maxValues": {"group_id": last},
        "nullCount": {"group_id": 0},
    }
    stats = json.dumps(statistics, ensure_ascii=False)  # delta-rs does not read pairs of surrogates (deltalake 1.6)
    return AddAction(name, len(content), _of(own), _now(), data_change=True, stats=stats)


def _of(own: RustTable) -> dict[str, str | None]:
    return {"cluster": own.cluster}


def _now() -> int:
    return int(time.time() * 1000)


def _condition(span: Span) -> str:
    first = "true" if span.first is None else f"group_id >= {quote(span.first)}"
    last = "true" if span.last is None else f"group_id <= {quote(span.last)}"
    return f"({first} AND {last})"


def _select(groups: DeltaTable, condition: str) -> pa.Table:
    builder = QueryBuilder().register("groups", groups)
    # Most of a row is in the other columns: read those of the matching rows only.
    builder.execute("SET datafusion.execution.parquet.pushdown_filters = true")
    schema = pa.schema(groups.schema().to_arrow())  # DataFusion returns string views, which Arrow cannot sort
    found = builder.execute(f"SELECT * FROM groups WHERE {condition}").read_all()  # noqa: S608 - quoted
    return pa.table(found).select(schema.names).cast(schema)

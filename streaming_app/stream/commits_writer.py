"""The job's second query: writes a row for the newest record of each key, for offset commits and all types of groups.

The query has its own checkpoint. It shares only the session with the query of the streams groups, and neither waits for
the other. A repeated batch appends nothing again (see `tables.newest_tables`). Before the rows, the query writes events
and undecodable records, but only the ones that are not in the tables yet.

A group id has one type at a time. When a broker converts a group, it writes the tombstones of the old type and the
records of the new type together. The only other way to another type is to delete the group and to use its id again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.groups.events import OF_COMMITS, TYPE_CHANGED
from streaming_app.stream.batch_records import is_whole, read_small
from streaming_app.stream.batch_rows import BatchRows, join, make_in_workers, schema_of
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.job_state import CommittedBatch
from streaming_app.stream.log_positions import LogPositions, read_whole
from streaming_app.stream.newest_records import COLUMNS, DRIFTED, GROUP_TYPES, Row, make_rows
from streaming_app.stream.offset_acts import Act, OffsetActs
from streaming_app.stream.stream_state import StateFile
from streaming_app.stream.table_versions import TableVersions, batch_writers
from streaming_app.stream.truncation import NOT_VOID
from streaming_app.tables.arrow import microseconds, to_table
from streaming_app.tables.checkpoint_offsets import BatchOffsets, commits_checkpoint_location
from streaming_app.tables.driver_limits import NEWEST, fits_driver
from streaming_app.tables.newest_tables import COMMITS, NAMES, RECORDS, NewestTables
from streaming_app.tables.reader import quote
from streaming_app.tables.rust_table import BatchId
from streaming_app.tables.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FEW_GROUPS = 2_000  # up to so many, their stored records are looked up by name
OWN_ROWS = {"group_events": f"kind IN ({', '.join(map(quote, OF_COMMITS))})", "quarantine": "true"}
"""SQL conditions for the history rows that this query wrote; in quarantine for the records of either query."""
SHARED = tuple(OWN_ROWS)
"""The history tables to which both this query and the query of the streams groups append."""

_METADATA = pa.schema(
    [
        schema_of(RECORDS).field(name)
        for name in ("group_id", "record_type", "deleted", "recorded_at", "source_partition", "last_offset")
    ]
)
"""The columns that tell the type of a group."""


class CommitsBatchWriter:
    """Called by Spark with every micro-batch; passes the counts of each to `on_done`."""

    def __init__(  # noqa: PLR0913 - the rest is for the job, not for tests
        self,
        writer: TableWriter,
        tables: NewestTables,
        options: FoldOptions,
        on_done: Callable[[int, CommittedBatch], None],
        *,
        state: StateFile | None = None,
        positions: LogPositions | None = None,
        groups_are_read: Callable[[Act], bool] = lambda _: True,
    ) -> None:
        """Prepare for batches of the topic of `options`; the other arguments are as in `GroupsBatchWriter`.

        `groups_are_read`: whether the query of the groups has read the log up to an act on offsets.
        """
        self._tables, self._options = tables, options
        self._history = {name: writer.table(name) for name in SHARED}
        self._on_done = on_done
        self._make_rows = partial(make_rows, options=options)
        checkpoint = commits_checkpoint_location(writer.location, options.cluster)
        self._state = state or StateFile(checkpoint).read()
        self._acts = OffsetActs(writer, options, self._state.state.acts, groups_are_read)
        self._offsets = BatchOffsets(checkpoint)
        self._positions = positions
        self._versions = TableVersions(writer, checkpoint, self._state, NAMES, shared=SHARED)

    def __call__(self, batch: DataFrame, batch_id: int) -> bool:
        """Write one micro-batch of `newest_records.wanted_records` into the tables. Return whether it gives rows."""
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._options.cluster
        rows = self._newest_rows(batch, self._offsets.most_records(batch_id))
        outcome = self.write_rows(rows, BatchId(batch_writers(self._options.cluster, query)[:1], batch_id))
        if any(outcome.written.values()):
            self._versions.write()
        self._on_done(batch_id, outcome)
        return any(outcome.written.values())

    def _newest_rows(self, batch: DataFrame, most: int | None) -> BatchRows:
        """Return the rows of the newest record of each key; there are at most `most` records.

        This process makes the rows of few records, Spark's workers those of many. Raises what `read_whole` raises.
        """
        ends = self._offsets.ends
        if most is not None and fits_driver(NEWEST, records=most):
            few = read_whole(self._positions, lambda: read_small(batch, most, NEWEST), ends)
            if is_whole(few):
                return join(self._make_rows(few.to_batches()))
        # A task reads whole partitions of the topic, and gives a file or two.
        records = batch.select(*COLUMNS).coalesce(batch.sparkSession.sparkContext.defaultParallelism)
        return read_whole(self._positions, lambda: make_in_workers(records, self._make_rows), ends)

    def write_rows(self, rows: BatchRows, written_by: BatchId) -> CommittedBatch:
        """Write the rows of a batch into the tables, and return its counts."""
        read, counts = partial(rows.read, cluster=self._options.cluster), rows.counts
        undecodable = microseconds(read("quarantine", schema=schema_of("quarantine"))).to_pylist()
        self._append_new("quarantine", ("partition",), undecodable, written_by)
        metadata = microseconds(read(RECORDS, schema=_METADATA))
        is_metadata = pc.is_in(metadata["record_type"], value_set=pa.array(GROUP_TYPES, pa.int32()))
        of_types = metadata.filter(is_metadata).to_pylist()
        self._append_new("group_events", ("group_id", "kind"), [*self._type_changes(of_types)], written_by)
        self._acts.find(rows, of_types)
        self.tell_acts()
        for name in NAMES:
            if name in rows.tables:
                self._tables.append(name, rows.tables[name], written_by)
        written = {"committed offsets": counts[COMMITS], "group records": counts[RECORDS]}
        return CommittedBatch(written=written, quarantined=counts["quarantine"], drifted=counts[DRIFTED])

    def tell_acts(self) -> None:
        """Write the events of acts that need not wait any longer. Not during a batch."""
        events, waiting = self._acts.decide()
        # Without the number of the batch: if the batch is repeated, the query of the groups may have read more.
        self._append_new("group_events", ("group_id", "kind"), events, None)
        self._acts.waiting = tuple(waiting)
        if self._acts.waiting != self._state.state.acts:
            self._state.write(acts=self._acts.waiting)

    def _type_changes(self, rows: Sequence[Row]) -> list[Row]:
        new: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            new[row["group_id"]].append(row)
        if not new:
            return []
        known: dict[str, list[Row]] = defaultdict(list)
        for row in self._tables.find_metadata_records(list(new) if len(new) <= _FEW_GROUPS else None):
            known[row["group_id"]].append(row)
        return [
            {
                "cluster": self._options.cluster,
                "group_id": group_id,
                "kind": TYPE_CHANGED,
                **change,
                "source_partition": records[0]["source_partition"],
                "log_epoch": self._options.log_epoch(records[0]["source_partition"], change["offset"]),
                "void": False,
            }
            for group_id, records in new.items()
            for change in type_changes(known[group_id], records)
        ]

    def _append_new(self, name: str, of: Sequence[str], rows: Sequence[Row], written_by: BatchId | None) -> None:
        """Append the rows that a table does not have yet, by the columns `of` and their offset.

        A new reading of the topic makes rows again.
        """
        if not rows:
            return
        key, offsets = itemgetter(*of, "offset"), ", ".join(str(row["offset"]) for row in rows)
        where = f'{OWN_ROWS[name]} AND {NOT_VOID} AND "offset" IN ({offsets})'
        columns = ", ".join(f'"{one}"' for one in (*of, "offset"))
        known = {*map(key, self._history[name].select(columns, where).to_pylist())}
        if new := [row for row in rows if key(row) not in known]:
            self._tables.append(name, to_table(new, schema_of(name)), written_by)


def type_changes(known: Iterable[Row], new: Iterable[Row]) -> Iterator[Row]:
    """Yield the changes that the new records prove, oldest first: offset, at, old and new. `known` records prove none.

    The rows are those of the metadata records of one group, with the columns of `_METADATA`.

    A change gets the offset and time of the tombstone of the old type, if there is one. Compaction replaces the first
    record of the new type by later ones, so a reader that comes later would see only the last.
    """
    offset = itemgetter("last_offset")
    last = max(known, key=offset, default=None)
    for record in sorted(new, key=offset):
        if last is not None and offset(record) <= offset(last):
            continue
        if last is not None and last["record_type"] != record["record_type"] and not record["deleted"]:
            proof = last if last["deleted"] else record
            old, new_type = GROUP_TYPES[last["record_type"]], GROUP_TYPES[record["record_type"]]
            yield {"offset": offset(proof), "at": proof["recorded_at"], "old": old, "new": new_type}
        last = record

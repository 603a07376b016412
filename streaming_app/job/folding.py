"""The Python stage of a batch: raw records and stored rows in, folded rows out. Runs in Spark's workers; no Spark here.

Rows come sorted by group and offset, a group's stored row first (as offset -1). Per group one row goes out, with its
events and its undecodable records nested, so that nothing decoded crosses Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsets_decoder import SHIPPED, DecodeError, decode
from schemas.table_definitions import table
from streaming_app.core.fold import CLASSIC_GROUP, Fold
from streaming_app.core.life import LogRecord
from streaming_app.core.readiness import Counts, not_ready_reason, required_topics
from streaming_app.core.row import from_row, to_row

STORED_OFFSET = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ROWS_A_BATCH = 200

_EVENT = "struct<at:timestamp,kind:string,member_id:string,old:string,new:string,offset:bigint>"
_UNDECODABLE = "struct<" + ",".join(f"{c.name}:{c.type}" for c in table("quarantine").columns[3:]) + ">"
COUNTS = ("groups", "decoded", "drifted", "quarantined", "told_events", "retracted_events")
"""Columns to sum up over all folded rows."""
FOLDED_DDL = (
    f"{table('groups').ddl}, events array<{_EVENT}>, retracted array<{_EVENT}>, undecodable array<{_UNDECODABLE}>, "
    + ", ".join(f"{name} bigint" for name in COUNTS)
)
"""Columns of the folded rows; `group_id` is null where nothing but undecodable records came."""

_Row = tuple[bytes | None, int, int | None, datetime | None, bytes | None, bytes | None, dict[str, Any] | None]


Lookup = Callable[[Sequence[str] | None], Counts | None]
"""Partition counts by topic, of these topics, or of all for None; None where they cannot be known."""


def fold_stream(
    batches: Iterable[pa.RecordBatch],
    cluster: str,
    schema: pa.Schema,
    topics: Lookup | None = None,
    dialect: str = SHIPPED,
) -> Iterator[pa.RecordBatch]:
    """Fold batches of (group bytes, offset, partition, timestamp, key, value, stored row) into batches of `schema`.

    `dialect` names the tag numbers, see `offsets_decoder.decode`. With `topics`, groups that are NotReady are given the
    reason, and those for which it changed are given out even without a record.
    """
    ready: list[dict[str, Any]] = []
    for _, rows in groupby(_rows(batches), key=itemgetter(0)):
        for folded in _fold_group(rows, cluster, topics, dialect):
            ready.append(folded)
            if len(ready) >= _ROWS_A_BATCH:
                yield pa.RecordBatch.from_pylist(ready, schema)
                ready = []
    if ready:
        yield pa.RecordBatch.from_pylist(ready, schema)


def stored_as_records(rows: pa.Table) -> pa.Table:
    """Stored rows in the columns of raw records, as the first of their groups."""
    fields, nothing = list(rows.schema), pa.nulls(rows.num_rows)
    return pa.table(
        {
            "group_bytes": rows["group_id"].cast(pa.binary()),
            "offset": pa.array([STORED_OFFSET] * rows.num_rows, pa.int64()),
            **dict.fromkeys(("partition", "timestamp", "key", "value"), nothing),
            "stored": pa.StructArray.from_arrays([rows[f.name].combine_chunks() for f in fields], fields=fields),
        }
    )


def sorted_for_fold(records: pa.Table, stored: pa.Table | None) -> pa.Table:
    """Raw records and stored rows in the order that `fold_stream` wants: what Spark's shuffle does for many."""
    if stored is None:
        both = records.append_column("stored", pa.nulls(records.num_rows))
    else:
        nothing = pa.nulls(records.num_rows, stored["stored"].type)
        records = records.append_column(stored.schema.field("stored"), nothing)
        both = pa.concat_tables([records, stored.select(records.column_names).cast(records.schema)])
    keys = [("group_bytes", "ascending"), ("offset", "ascending")]
    return both.combine_chunks().take(pc.sort_indices(both.select(["group_bytes", "offset"]), keys))


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _fold_group(rows: Iterator[_Row], cluster: str, topics: Lookup | None, dialect: str) -> Iterator[dict[str, Any]]:
    """The folded row of one group, after rows of undecodable records alone where there are very many of those."""
    fold: Fold | None = None
    outcome = _Outcome()
    for _, offset, partition, timestamp, key, value, stored in rows:
        if stored is not None:
            fold = Fold.of(stored["group_id"], stored["source_partition"], from_row(stored))
            continue
        at = timestamp if timestamp is not None and timestamp >= _EPOCH else None
        if key is not None and key[:2] == CLASSIC_GROUP.to_bytes(2, "big"):
            if fold:  # nothing but that a record is there, or a tombstone, is of interest
                fold.add([LogRecord(offset, at, CLASSIC_GROUP, {}, None if value is None else {})])
            continue
        try:
            record = decode(key, value, dialect=dialect)  # type: ignore[arg-type] # a null key is refused as any other bad one
        except DecodeError as error:
            outcome.refuse(error, partition, offset, at, key, value)
            if len(outcome.undecodable) >= _ROWS_A_BATCH:
                yield outcome.alone(cluster)
            continue
        outcome.decoded += 1
        outcome.drifted += record.drift
        fold = fold or Fold.of(record.key["group_id"], partition or 0, None)
        fold.add([LogRecord(offset, at, record.record_type, record.key, record.value)])
    if fold:
        fold.close()
        _give_reason(fold, topics)
    if fold and fold.touched:
        yield outcome.of(fold, cluster)
    elif outcome.decoded or outcome.undecodable:
        yield outcome.alone(cluster)


def _give_reason(fold: Fold, topics: Lookup | None) -> None:
    """Let the row say why the group is NotReady."""
    life, group, reason = fold.life, fold.life.group, None
    if life.state == "NotReady":
        if topics is None:  # a worker, which cannot ask; the driver will
            return
        patterns = any(part["source_topic_regex"] for part in group.subtopologies)
        counts = topics(None if patterns else required_topics(group.subtopologies))
        if counts is None and life.not_ready_reason:
            return  # what was once seen says more than the log
        facts = {
            "state": life.state,
            "topology_epoch": group.topology_epoch,
            "validated_topology_epoch": group.validated_topology_epoch,
            "metadata_hash": group.metadata_hash,
            "subtopologies": group.subtopologies,
        }
        told = not_ready_reason(facts, counts)
        reason = told and f"{told.status}: {told.detail}"
    fold.give_reason(reason)


class _Outcome:
    """What came of a group's records besides its row."""

    def __init__(self) -> None:
        self.decoded = self.drifted = 0
        self.undecodable: list[dict[str, Any]] = []

    def refuse(  # noqa: PLR0913, PLR0917 - a record is what it is
        self,
        error: DecodeError,
        partition: int | None,
        offset: int,
        timestamp: datetime | None,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        self.undecodable.append(
            {
                "partition": partition,
                "offset": offset,
                "timestamp": timestamp,
                "key": key,
                "value": value,
                "error_kind": type(error).__name__,
                "message": str(error),
            }
        )

    def of(self, fold: Fold, cluster: str) -> dict[str, Any]:
        return {
            **to_row(cluster, fold.life),
            "events": [event._asdict() for event in fold.events],
            "retracted": [event._asdict() for event in fold.retracted],
            "groups": 1,
            "told_events": len(fold.events),
            "retracted_events": len(fold.retracted),
            **self._taken(),
        }

    def alone(self, cluster: str) -> dict[str, Any]:
        nothing: dict[str, Any] = {"group_id": None, "events": [], "retracted": [], **dict.fromkeys(COUNTS, 0)}
        return {"cluster": cluster, **nothing, **self._taken()}

    def _taken(self) -> dict[str, Any]:
        taken = {
            "undecodable": self.undecodable,
            "quarantined": len(self.undecodable),
            "decoded": self.decoded,
            "drifted": self.drifted,
        }
        self.undecodable, self.decoded, self.drifted = [], 0, 0
        return taken

"""What the job does with one micro-batch: filter in the JVM, fold in Python, append events, put groups in place.

The order matters. Events and quarantine go first, marked with the batch so that Delta skips a second append; groups go
last. A crash in between repeats the batch from the checkpoint: nothing is lost, nothing stands twice, and rows that
were written already skip the records they have seen.

A batch of few records is folded right here, one of many by Spark's workers: the same fold, fed and drained the same
way. To start workers, shuffle and merge takes seconds, whatever the size, and most batches of a living cluster are
small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from offsets_decoder import SHIPPED
from schemas.table_definitions import table
from streaming_app.job.beginning import HISTORY
from streaming_app.job.folding import (
    COUNTS,
    FOLDED_DDL,
    STORED_OFFSET,
    Lookup,
    fold_stream,
    sorted_for_fold,
    stored_as_records,
)
from streaming_app.job.source import GROUP_BYTES, RECORD_TYPE, WANTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from streaming_app.job.tables import Warehouse
    from streaming_app.job.upkeep import Upkeep

_FEW_RECORDS = 20_000
_FEW_GROUPS = 2_000  # groups of a small batch are named to Delta, one by one
_STORED_AS_RECORD = (
    "encode(group_id, 'UTF-8') AS group_bytes",
    f"{STORED_OFFSET}L AS offset",
    "CAST(NULL AS int) AS partition",
    "CAST(NULL AS timestamp) AS timestamp",
    "CAST(NULL AS binary) AS key",
    "CAST(NULL AS binary) AS value",
    "struct(*) AS stored",
)


@dataclass(frozen=True)
class BatchOutcome:
    """What one batch came to."""

    decoded: int = 0
    groups: int = 0
    quarantined: int = 0
    drifted: int = 0
    by_type: Mapping[int, int] = field(default_factory=dict)
    """Records that were looked at, by record type; -1 for those without a key."""


class Onlooker(Protocol):
    """Who wants to know of groups that changed, once they are in the tables."""

    def batch(self, folded: pa.Table) -> None:
        """These rows, with the columns of `FOLDED_DDL`, were put in place."""

    def changed(self) -> None:
        """Many rows were: they are better read from the table."""


class _Batch(NamedTuple):
    """What makes an append of this batch known to Delta when it comes again."""

    writer: str
    number: int


class Pipeline:
    """Called by Spark with every micro-batch; hands what came of it to `done`."""

    def __init__(  # noqa: PLR0913 - the last five are for the job, not for tests
        self,
        warehouse: Warehouse,
        cluster: str,
        topic: str,
        done: Callable[[int, BatchOutcome], None],
        *,
        told: Mapping[str, Mapping[int, int]] | None = None,
        topics: Lookup | None = None,
        upkeep: Upkeep | None = None,
        onlooker: Onlooker | None = None,
        dialect: str = SHIPPED,
    ) -> None:
        """Prepare for batches of `topic`.

        `told` is what history holds already, see `beginning`; `topics` tells what is wrong with a NotReady group's.
        """
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark is loaded by those who need it
        from pyspark.sql.types import StructType  # noqa: PLC0415

        self._warehouse = warehouse
        self._quick = warehouse.for_few_rows()
        self._cluster = cluster
        self._topic = topic
        self._done = done
        self._upkeep = upkeep
        self._onlooker = onlooker
        self._nothing_stored = warehouse.is_empty("groups")
        self._untold = {name: _untold(partition, (told or {}).get(name)) for name, partition in HISTORY.items()}
        self._schema = to_arrow_schema(StructType.fromDDL(FOLDED_DDL))  # type: ignore[arg-type] # it is a StructType
        self._fold = partial(fold_stream, cluster=cluster, schema=self._schema, dialect=dialect)
        self._topics = topics

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Take one micro-batch of the Kafka source into the tables."""
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._cluster
        raw = batch.where(WANTED).selectExpr(
            f"{GROUP_BYTES} AS group_bytes", "offset", "partition", "timestamp", "key", "value"
        )
        raw = raw.persist()
        try:
            counted = raw.groupBy(F.expr(RECORD_TYPE)).count().collect()  # the one reading of the topic
            by_type: dict[int, int] = dict(counted)
            counts = self._take(raw, sum(by_type.values()), _Batch(f"{self._cluster}-{query}", batch_id))
        finally:
            raw.unpersist()
        told = {name: counts.get(name) or 0 for name in ("decoded", "groups", "quarantined", "drifted")}
        self._done(batch_id, BatchOutcome(**told, by_type=by_type))
        if self._upkeep:
            self._upkeep.after_batch(wrote=any(told.values()))

    def _take(self, raw: DataFrame, seen: int, batch: _Batch) -> Mapping[str, int]:
        if not seen:
            return {}
        if seen <= _FEW_RECORDS:
            records = raw.toArrow()
            keys = [key for key in pc.unique(records["group_bytes"]).to_pylist() if key is not None]
            if len(keys) <= _FEW_GROUPS:
                return self._take_few(records, [key.decode("utf-8", "replace") for key in keys], batch)
        counts = self._take_many(raw, batch)
        self._look_at_topics(batch)
        return counts

    def _take_few(self, records: pa.Table, group_ids: list[str], batch: _Batch) -> Mapping[str, int]:
        stored = None if self._nothing_stored else stored_as_records(self._quick.stored_rows("group_id", group_ids))
        return self._fold_here(records, stored, batch)

    def _look_at_topics(self, batch: _Batch) -> None:
        """Give the NotReady groups their reasons, which workers, who cannot ask the cluster, left out."""
        if self._topics:
            stored = stored_as_records(self._quick.stored_rows("state", ["NotReady"]))
            none = stored.drop_columns("stored").slice(0, 0)
            self._fold_here(none, stored, batch._replace(writer=f"{batch.writer}-topics"))

    def _fold_here(self, records: pa.Table, stored: pa.Table | None, batch: _Batch) -> Mapping[str, int]:
        ordered = sorted_for_fold(records, stored)
        folded = pa.Table.from_batches(self._fold(ordered.to_batches(), topics=self._topics), self._schema)
        if not folded.num_rows:  # records of groups that are none of ours
            return {}
        counts = {name: pc.sum(folded[name]).as_py() for name in COUNTS}
        frame = self._quick.frame(folded)
        self._append(self._quick, frame, counts, batch)
        if counts["groups"] and stored is not None and stored.num_rows:
            touched = folded["group_id"].drop_null().to_pylist()
            self._quick.replace_groups(_groups(frame), touched)
        elif counts["groups"]:
            self._nothing_stored = False  # from now on, even if the next line fails
            self._quick.add_groups(_groups(frame))
        if self._onlooker:
            self._onlooker.batch(folded)
        return counts

    def _take_many(self, raw: DataFrame, batch: _Batch) -> Mapping[str, int]:
        stored, first = self._warehouse.stored(), self._nothing_stored
        records = raw.selectExpr("*", "NULL AS stored")
        if not first:
            touched = raw.select("group_bytes").distinct()
            records = records.unionByName(
                stored.selectExpr(*_STORED_AS_RECORD).join(touched, "group_bytes", "left_semi")
            )
        ordered = records.repartition("group_bytes").sortWithinPartitions("group_bytes", "offset")
        folded = ordered.mapInArrow(self._fold, FOLDED_DDL).persist()
        try:
            sums = folded.selectExpr(*(f"coalesce(sum({name}), 0) AS {name}" for name in COUNTS))
            counts = sums.collect()[0].asDict()
            self._append(self._warehouse, folded, counts, batch)
            if counts["groups"]:
                put = self._warehouse.add_groups if first else self._warehouse.merge_groups
                self._nothing_stored = False
                put(_groups(folded))
            if self._onlooker:
                self._onlooker.changed()
        finally:
            folded.unpersist()
        return counts

    def _append(self, warehouse: Warehouse, folded: DataFrame, counts: Mapping[str, int], batch: _Batch) -> None:
        if counts["told_events"] or counts["retracted_events"]:
            events = _events(folded, "events").where(self._untold["group_events"])
            if counts["retracted_events"]:
                warehouse.rewrite_events(events, _events(folded, "retracted"))
            else:
                warehouse.append("group_events", events, *batch)
        if counts["quarantined"]:
            warehouse.append("quarantine", self._undecodable(folded), *batch)

    def _undecodable(self, folded: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        records = folded.selectExpr("cluster", "group_id", "explode(undecodable) AS record").select(
            "cluster", "group_id", F.lit(self._topic).alias("topic"), "record.*"
        )
        return records.where(self._untold["quarantine"])


def _groups(folded: DataFrame) -> DataFrame:
    return folded.where("group_id IS NOT NULL").select(*table("groups").names)


def _events(folded: DataFrame, name: str) -> DataFrame:
    exploded = folded.selectExpr("cluster", "group_id", "source_partition", f"explode({name}) AS event")
    return exploded.select("cluster", "group_id", "source_partition", "event.*").select(*table("group_events").names)


def _untold(partition: str, told: Mapping[int, int] | None) -> str:
    """The condition that a row is beyond what history holds."""
    if not told:
        return "true"
    reached = ", ".join(f"{number}, {offset}L" for number, offset in told.items())
    return f"offset > coalesce(map({reached})[{partition}], -1)"

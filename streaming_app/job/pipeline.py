"""What the job does with one micro-batch: filter in the JVM, fold in Python, append events, merge groups.

The order matters. Events and quarantine go first, marked with the batch so that Delta skips a second append; the MERGE
goes last. A crash in between repeats the batch from the checkpoint: nothing is lost, nothing stands twice, and rows
that were merged already skip the records they have seen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from schemas.table_definitions import table
from streaming_app.job.folding import FOLDED_DDL, STORED_OFFSET, fold_stream
from streaming_app.job.source import GROUP_BYTES, WANTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row

    from streaming_app.job.tables import Warehouse

_NAMED_GROUPS = 500  # up to so many groups are named to Delta, beyond it is a join


@dataclass(frozen=True)
class BatchOutcome:
    """What one batch came to."""

    decoded: int = 0
    groups: int = 0
    quarantined: int = 0
    drifted: int = 0
    seconds: float = 0.0


class Pipeline:
    """Called by Spark with every micro-batch; hands what came of it to `done`."""

    def __init__(
        self, warehouse: Warehouse, cluster: str, topic: str, done: Callable[[int, BatchOutcome], None]
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark is loaded by those who need it
        from pyspark.sql.types import StructType  # noqa: PLC0415

        self._warehouse = warehouse
        self._cluster = cluster
        self._topic = topic
        self._done = done
        schema = to_arrow_schema(StructType.fromDDL(FOLDED_DDL))  # type: ignore[arg-type] # it is a StructType
        self._fold = partial(fold_stream, cluster=cluster, schema=schema)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Take one micro-batch of the Kafka source into the tables."""
        started = time.monotonic()
        writer = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._cluster
        raw = batch.where(WANTED).selectExpr(
            f"{GROUP_BYTES} AS group_bytes", "offset", "partition", "timestamp", "key", "value"
        )
        raw = raw.persist()
        try:
            outcome = self._take(raw, f"{self._cluster}-{writer}", batch_id)
        finally:
            raw.unpersist()
        self._done(batch_id, BatchOutcome(**outcome, seconds=time.monotonic() - started))

    def _take(self, raw: DataFrame, writer: str, batch_id: int) -> dict[str, int]:
        keys = [row[0] for row in raw.select("group_bytes").distinct().limit(_NAMED_GROUPS + 1).collect()]
        if not keys:
            return {}
        named = [bytes(key) for key in keys if key is not None] if len(keys) <= _NAMED_GROUPS else None
        folded = self._folded(raw, named).persist()
        try:
            counts = self._counts(folded)
            self._write(folded, counts, named, writer, batch_id)
        finally:
            folded.unpersist()
        return {name: counts[name] or 0 for name in ("decoded", "groups", "quarantined", "drifted")}

    def _folded(self, raw: DataFrame, named: list[bytes] | None) -> DataFrame:
        stored = self._warehouse.stored(named).selectExpr(
            "encode(group_id, 'UTF-8') AS group_bytes",
            f"{STORED_OFFSET}L AS offset",
            "CAST(NULL AS int) AS partition",
            "CAST(NULL AS timestamp) AS timestamp",
            "CAST(NULL AS binary) AS key",
            "CAST(NULL AS binary) AS value",
            "struct(*) AS stored",
        )
        if named is None:
            stored = stored.join(raw.select("group_bytes").distinct(), "group_bytes", "left_semi")
        ordered = (
            raw.selectExpr("*", "NULL AS stored")
            .unionByName(stored)
            .repartition("group_bytes")
            .sortWithinPartitions("group_bytes", "offset")
        )
        return ordered.mapInArrow(self._fold, FOLDED_DDL)

    @staticmethod
    def _counts(folded: DataFrame) -> Row:
        counts = folded.selectExpr(
            "sum(decoded) AS decoded",
            "count(group_id) AS groups",
            "sum(size(undecodable)) AS quarantined",
            "sum(drifted) AS drifted",
            "sum(size(events)) AS events",
            "sum(size(retracted)) AS retracted",
        ).first()
        assert counts is not None  # noqa: S101 - an aggregate without keys has one row
        return counts

    def _write(self, folded: DataFrame, counts: Row, named: list[bytes] | None, writer: str, batch_id: int) -> None:
        if counts["retracted"]:
            self._warehouse.rewrite_events(_events(folded, "events"), _events(folded, "retracted"))
        elif counts["events"]:
            self._warehouse.append("group_events", _events(folded, "events"), writer, batch_id)
        if counts["quarantined"]:
            self._warehouse.append("quarantine", self._undecodable(folded), writer, batch_id)
        if counts["groups"]:
            ids = None if named is None else [key.decode("utf-8", "replace") for key in named]
            self._warehouse.merge_groups(folded.where("group_id IS NOT NULL").select(*table("groups").names), ids)

    def _undecodable(self, folded: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        return folded.selectExpr("cluster", "group_id", "explode(undecodable) AS record").select(
            "cluster", "group_id", F.lit(self._topic).alias("topic"), "record.*"
        )


def _events(folded: DataFrame, name: str) -> DataFrame:
    exploded = folded.selectExpr("cluster", "group_id", "source_partition", f"explode({name}) AS event")
    return exploded.select("cluster", "group_id", "source_partition", "event.*").select(*table("group_events").names)

"""The second stream of the job: committed offsets, and groups of every type. It is kept running as the first one is.

It reads the same topic, with a checkpoint and a health of its own. It runs in a thread of its own, and in a pool of
Spark's scheduler of its own, so that the streams groups wait neither for its batches nor for its failures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from streaming_app.job.offsets_stream import StreamChangedError
from streaming_app.job.spark_progress import OFFSETS
from streaming_app.job.stream_query import StreamQuery
from streaming_app.kafka.offsets_topic import describe_offsets_topic
from streaming_app.kafka.topic_identity import TopicIdentity
from streaming_app.stream.checkpoint import QueryTables, check_same_topic, prepare_start
from streaming_app.stream.commits_batch import SHARED, CommitsBatchWriter
from streaming_app.stream.outcome import FoldOptions
from streaming_app.stream.progress import Progress
from streaming_app.stream.source import read_stream
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables.checkpoint_offsets import commits_checkpoint_location
from streaming_app.tables.definitions import table
from streaming_app.tables.maintenance import Maintenance
from streaming_app.tables.newest_tables import COMMITS, NAMES, NewestTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming_app.config.settings import JobConfig
    from streaming_app.stream.health import Health
    from streaming_app.tables.delta_writer import DeltaWriter


class CommitsStream:
    """Starts the query, any number of times."""

    def __init__(  # noqa: PLR0913 - each is one thing that the stream is built of
        self,
        spark: SparkSession,
        config: JobConfig,
        properties: Mapping[str, str],
        writer: DeltaWriter,
        *,
        health: Health,
        report: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        """Prepare. `properties` are Kafka client properties; no batch begins once `stop` is set."""
        self._spark, self._config, self._properties, self._writer = spark, config, properties, writer
        self._health, self._report = health, report
        self._checkpoint = commits_checkpoint_location(config.warehouse, config.cluster)
        self._tables = NewestTables(writer, config.cluster, config.retention_days)
        self._reset = config.reset  # for the first start only
        self._partitions = 0
        self._identities: list[str] = []
        self._topic_identity = TopicIdentity(spark, properties)
        self._query = StreamQuery(self._checkpoint, stop, OFFSETS)
        self.progress = Progress(report, health, OFFSETS)
        self._maintenance = Maintenance(
            self._tables,
            config.warehouse / "_jobs" / f"{config.cluster}.offsets-upkeep",
            config.retention_days,
            report,
            tables=[table(name) for name in NAMES],
            on_failure=health.maintenance_failed,
            is_stopping=stop.is_set,
        )

    @property
    def is_writing(self) -> bool:
        """Whether a batch is being written."""
        return self._query.is_writing

    def start(self) -> StreamingQuery:
        """Describe the topic, make checkpoint and tables fit it, and start the query; raises as `OffsetsStream`."""
        self._query.wait_for_batch()
        topic = describe_offsets_topic(self._spark, self._properties, self._config.topic)
        self._writer.prepare()
        tables = QueryTables(
            name=COMMITS,
            has_rows=lambda: any(self._tables.count_rows(name) for name in NAMES),
            delete_rows=self._tables.delete,
            versions=TableVersions(self._writer, self._checkpoint, NAMES, shared=SHARED),
        )
        position = prepare_start(
            self._writer,
            self._checkpoint,
            topic,
            reset=self._reset,
            away=self._health.time_away(),
            tables=tables,
        )
        self._reset = False
        self._partitions, self._identities = topic.partitions, self._read_identities()
        self._health.started_reading(
            from_beginning=position.from_beginning,
            tombstone_retention=timedelta(milliseconds=topic.delete_retention_ms),
        )
        self._report(position.message)
        options = FoldOptions(
            self._config.cluster, topic.name, self._config.dialect, topic.partitions, position.partitions_grew
        )
        self._topic_identity.remember(topic)
        write = CommitsBatchWriter(
            self._writer,
            self._tables,
            options,
            self.progress.on_done,
            maintenance=self._maintenance,
            check_topic=self._topic_identity.check,
        )
        once = self._config.once
        self.progress.end_known_at = datetime.now(timezone.utc) if once else None
        # The threads of a query inherit this. In the default pool its tasks would run before those of later batches.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", OFFSETS)
        records = read_stream(self._spark, self._properties, topic, self._config.max_offsets_per_trigger)
        return self._query.start(records, write, None if once else self._config.offsets.trigger)

    def look_at(self, query: StreamingQuery) -> None:
        """Note that there is nothing to read, if Spark posts no event of it."""
        self.progress.look_at(query)

    def check(self) -> None:
        """Check that the running query may go on; raises as `OffsetsStream`."""
        topic = describe_offsets_topic(self._spark, self._properties, self._config.topic)
        check_same_topic(self._writer.files, self._checkpoint, topic)
        if topic.partitions > self._partitions > 0:
            raise StreamChangedError(f"The topic now has {topic.partitions} partitions")
        if self._read_identities() != self._identities:
            raise StreamChangedError("A table was deleted while the job ran")

    def finish(self) -> None:
        """Record that the stream is done, with `once`."""
        self._health.nothing_new(self.progress.end_known_at)

    def close(self) -> None:
        """Release what the stream holds."""
        self._topic_identity.close()

    def _read_identities(self) -> list[str]:
        """Return what identifies the tables; empty for one that does not exist."""
        places = {name: self._writer.location / name for name in (*NAMES, *SHARED)}
        return [self._writer.identity(name) if place.is_delta_table() else "" for name, place in places.items()]

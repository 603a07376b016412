"""The stream of the offsets topic: how its query is started, each time, and whether it may go on.

Everything that a start depends on may change while the job runs: the topic may get partitions, tables may be lost, the
brokers may be away for longer than tombstones are kept. So each start of the query, and not only the first one of the
process, describes the topic, creates missing tables and decides where to read from.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from streaming_app.job.self_check import make_self_check
from streaming_app.job.stream_query import StreamQuery
from streaming_app.kafka.description_plugin import has_description_plugin
from streaming_app.kafka.offsets_topic import describe_offsets_topic
from streaming_app.kafka.topic_identity import TopicIdentity
from streaming_app.stream.checkpoint import check_same_topic, prepare_start
from streaming_app.stream.micro_batch import MicroBatchWriter
from streaming_app.stream.progress import Progress
from streaming_app.stream.source import read_stream
from streaming_app.tables.lost_tables import KnownTables, LostTableError
from streaming_app.tables.maintenance import Maintenance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming_app.config.settings import JobConfig
    from streaming_app.job.services import BackgroundServices
    from streaming_app.kafka.offsets_topic import OffsetsTopic
    from streaming_app.kafka.topic_metadata import TopicMetadata
    from streaming_app.stream.health import Health
    from streaming_app.tables.delta_writer import DeltaWriter

_READ_PLUGIN_SECONDS = 3600.0
_LISTENERS_MS = 60_000  # for listeners to receive the events of a query that has ended, on a loaded machine, too


class StreamChangedError(Exception):
    """The query must be started again; the text says why, in one line."""


class OffsetsStream:
    """Starts the query of one job, any number of times."""

    def __init__(  # noqa: PLR0913 - each is one thing that the stream is built of
        self,
        spark: SparkSession,
        config: JobConfig,
        properties: Mapping[str, str],
        writer: DeltaWriter,
        *,
        health: Health,
        topics: TopicMetadata,
        services: BackgroundServices,
        report: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        """Prepare. `properties` are Kafka client properties; no batch begins once `stop` is set."""
        self._spark, self._config, self._properties, self._writer = spark, config, properties, writer
        self._health, self._topics, self._services = health, topics, services
        self._report, self._stop = report, stop
        self._checkpoint = config.warehouse / "_checkpoints" / config.cluster
        self._reset = config.reset  # for the first start only
        self._partitions = 0
        self._plugin_read_at = -math.inf
        self._topic_identity = TopicIdentity(spark, properties)
        self._tables = KnownTables(config.warehouse, writer.files)
        self._query = StreamQuery(self._checkpoint, stop)
        self.progress = Progress(report, health, shows_phases=config.profile)
        self._maintenance = Maintenance(
            writer,
            config.warehouse / "_jobs" / f"{config.cluster}.maintenance",
            config.retention_days,
            report,
            on_failure=health.maintenance_failed,
            is_stopping=stop.is_set,
        )

    @property
    def is_writing(self) -> bool:
        """Whether a batch is being written."""
        return self._query.is_writing

    def start(self) -> StreamingQuery:
        """Describe the topic, make checkpoint and tables fit it, and start the query.

        Raises UnreachableError or MissingTopicError when there is nothing to read yet, another JobError when the topic
        may not be read, StopRequestedError when the job ends, and the errors of Spark and delta-rs.
        """
        self._services.stop_self_check()
        self._query.wait_for_batch()  # of the query before
        self.wait_for_listeners()
        topic = describe_offsets_topic(self._spark, self._properties, self._config.topic)
        self._read_description_plugin()
        for name in self._tables.remove_remains():
            self._report(f"The table {name} was deleted while a batch wrote it: what the batch wrote then is removed")
        self._writer.prepare()
        position = prepare_start(
            self._writer, self._checkpoint, topic, reset=self._reset, away=self._health.time_away()
        )
        self._reset = False
        self._tables.remember()
        self._partitions = topic.partitions
        self._topic_identity.remember(topic)
        if position.from_beginning:
            self._services.group_cache.on_bulk_change()
        self._health.started_reading(
            from_beginning=position.from_beginning,
            tombstone_retention=timedelta(milliseconds=topic.delete_retention_ms),
        )
        size = f"{topic.partitions} partitions, {topic.offsets:,} offsets"
        self._report(f"{topic.name} at {self._config.bootstrap_server}: {size}; {position.message}")
        write_batch = MicroBatchWriter(
            self._writer,
            self._config.cluster,
            topic.name,
            self.progress.on_done,
            history_offsets=position.history_offsets,
            partitions=topic.partitions,
            partitions_grew=position.partitions_grew,
            topics=self._topics,
            check_topic=self._topic_identity.check,
            maintenance=self._maintenance,
            listener=self._services.group_cache,
            dialect=self._config.dialect,
        )
        query = self._start_query(topic, write_batch)
        self._start_self_check(topic, write_batch)
        return query

    def look_at(self, query: StreamingQuery) -> None:
        """Note that there is nothing to read, if Spark posts no event of it."""
        self.progress.look_at(query)

    def check(self) -> None:
        """Check that the running query may go on.

        Raises StreamChangedError when it must be started again, UnreachableError when no broker answers,
        OtherTopicError when the topic was created again, and other errors as `start` does.
        """
        topic = describe_offsets_topic(self._spark, self._properties, self._config.topic)
        check_same_topic(self._writer.files, self._checkpoint, topic)
        if time.monotonic() >= self._plugin_read_at + _READ_PLUGIN_SECONDS:
            self._read_description_plugin()
        if topic.partitions > self._partitions > 0:
            raise StreamChangedError(f"The topic now has {topic.partitions} partitions")
        try:
            self._tables.check()
        except LostTableError as error:
            raise StreamChangedError(str(error)) from None

    def _read_description_plugin(self) -> None:
        """Read again whether the brokers have a description plugin: it may be configured or removed meanwhile."""
        self._plugin_read_at = time.monotonic()
        self._services.description_plugin(exists=has_description_plugin(self._spark, self._properties))

    def wait_for_listeners(self) -> None:
        """Wait until the events of the batches so far have arrived: they are about the query before the next start."""
        self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS_MS)  # noqa: SLF001 - it has no public name

    def close(self) -> None:
        """Release what the stream holds."""
        self._tables.close()
        self._topic_identity.close()

    def _start_query(self, topic: OffsetsTopic, write_batch: MicroBatchWriter) -> StreamingQuery:
        def write(batch: DataFrame, batch_id: int) -> None:
            self._tables.check_quickly()
            write_batch(batch, batch_id)
            self._tables.check_quickly()

        once = self._config.once
        self.progress.end_known_at = datetime.now(timezone.utc) if once else None
        records = read_stream(self._spark, self._properties, topic, self._config.max_offsets_per_trigger)
        return self._query.start(records, write, None if once else self._config.trigger)

    def _start_self_check(self, topic: OffsetsTopic, write_batch: MicroBatchWriter) -> None:
        if self._stop.is_set():
            return
        self._services.start_self_check(
            lambda: make_self_check(
                self._config,
                self._spark,
                properties=self._properties,
                topic=topic,
                writer=self._writer,
                write_batch=write_batch,
                topics=self._topics,
                listener=self._services.group_cache,
                health=self._health,
                report=self._report,
            )
        )

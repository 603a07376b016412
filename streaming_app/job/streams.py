"""The two streams of the job: how each start of their queries works, and whether a running query may go on.

Both read the offsets topic: one for the streams groups, one for committed offsets and groups of all types. Each has its
own checkpoint and health. The second one also has its own thread and its own pool in Spark's scheduler, so the streams
groups wait neither for its batches nor for its failures.

Everything on which a start depends may change while the job runs: the topic may get partitions, tables may be lost, the
brokers may be away for longer than they keep tombstones. So each start of a query, not only the first one of the
process, describes the topic, creates missing tables and decides where to read from.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from streaming_app.errors import WarehouseError
from streaming_app.groups.budget import Budget
from streaming_app.job.service import Service
from streaming_app.job.stream_query import (
    OFFSETS,
    LogTruncatedError,
    StreamChangedError,
    StreamQuery,
    is_lost_connection,
)
from streaming_app.kafka.broker_facts import has_description_plugin
from streaming_app.kafka.log_reader import LogReaders
from streaming_app.kafka.offsets_topic import OffsetsTopic, OffsetsTopicClient
from streaming_app.report import Report
from streaming_app.stream import newest_records, source
from streaming_app.stream.commits_batch import OWN_ROWS, SHARED, CommitsBatchWriter
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.stream.log_positions import LogPositions, TruncatedLogError
from streaming_app.stream.outcome import FoldOptions
from streaming_app.stream.progress import Progress
from streaming_app.stream.read_check import require_partitions, require_records
from streaming_app.stream.source import read_stream
from streaming_app.stream.start import (
    QueryTables,
    StartPosition,
    check_same_topic,
    finish_reading,
    prepare_start,
)
from streaming_app.stream.table_versions import KnownTables, LostTableError, TableVersions
from streaming_app.tables.checkpoint_offsets import (
    checkpoint_location,
    commits_checkpoint_location,
    newest_batch_ends,
    read_batch_ends,
)
from streaming_app.tables.definitions import table
from streaming_app.tables.maintenance import Maintenance
from streaming_app.tables.newest_tables import COMMITS, NAMES, NewestTables
from streaming_app.text import count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming_app.config.settings import JobConfig
    from streaming_app.job.services import BackgroundServices
    from streaming_app.kafka.topic_metadata import TopicMetadata
    from streaming_app.stream.health import Health
    from streaming_app.tables.location import Location
    from streaming_app.tables.writer import TableWriter

_READ_PLUGIN_SECONDS = 3600.0
_BUSY_SECONDS = 1.0  # between two batches of groups while commits keep coming: each batch has a fixed cost
_LOOK_SECONDS = 1.0  # between two checks of a query's progress: each takes some calls of the JVM
_MAINTENANCE_SECONDS = 1.0  # between two checks whether maintenance is due; a check takes no time


@dataclass(frozen=True)
class StreamParts:
    """The objects of which a stream is built."""

    spark: SparkSession
    config: JobConfig
    properties: Mapping[str, str]
    """Kafka client properties."""
    writer: TableWriter
    health: Health
    report: Report


class TopicStream(ABC):
    """Starts a query of one job, any number of times."""

    name: ClassVar[str | None] = None
    watched: ClassVar[Sequence[str] | None] = None
    """The tables whose loss ends the query; None: all."""
    wanted: ClassVar[staticmethod[[DataFrame], DataFrame]]
    """Selects the records of a batch from the records of the Kafka source."""
    busy_seconds = 0.0
    """The time between batches while records keep coming, if it is more than the trigger."""

    def __init__(
        self, parts: StreamParts, checkpoint: Location, trigger: float, maintenance: Callable[..., Maintenance]
    ) -> None:
        self.stopping = threading.Event()
        """No batch begins once it is set."""
        self.query = StreamQuery(checkpoint, self.stopping, self.name)
        self._maintenance = maintenance(
            retention_days=parts.config.retention_days,
            report=parts.report,
            on_failure=parts.health.maintenance_failed,
            is_stopping=self.stopping.is_set,
            between_batches=self.query.lock,
        )
        self.config, self.health, self.report = parts.config, parts.health, parts.report
        self._spark, self._properties, self._writer = parts.spark, parts.properties, parts.writer
        self._checkpoint, self._trigger = checkpoint, trigger
        self._reset = parts.config.reset  # for the first start only
        self._topic: OffsetsTopic | None = None
        self._starts: Mapping[int, int] | None = None  # log starts by partition; None: not known
        self._client = OffsetsTopicClient(parts.properties, parts.config.topic, parts.spark)
        self._positions = LogPositions(
            parts.properties,
            checkpoint,
            parts.report,
            self.stopping,
            on_cut=parts.health.log_cut,
        )
        self._known_tables = KnownTables(parts.config.warehouse, self.watched)
        self.progress = Progress(parts.report, parts.health)

    def start(self) -> StreamingQuery:
        """Describe the topic, make checkpoint and tables fit it, and start the query.

        Raises UnreachableError or MissingTopicError when there is nothing to read yet, another JobError when the topic
        may not be read, StopRequestedError when the job ends, and the errors of Spark and delta-rs.
        """
        self.health.reading = None
        self.query.wait_for_batch()
        self._writer.check_owner()
        context = self._spark.sparkContext
        context.setJobDescription(self.query.start_description)  # for the queries of this thread
        if self.name:  # the threads of a query inherit it: in the default pool its tasks would delay the other stream
            context.setLocalProperty("spark.scheduler.pool", self.name)
        topic = self._client.describe()
        with self.query.lock:  # else a running maintenance would see tables that come and go
            self._before_start()
            self._writer.prepare(self.report)
            log = self._positions.open(topic, newest_batch_ends(self._checkpoint))
            position = prepare_start(
                self._writer,
                self._checkpoint,
                topic,
                reset=self._reset,
                away=self.health.time_away(),
                tables=self._query_tables(),
                log=log,
                groups=(groups := self._groups_to_read_again()),
            )
            self._positions.started(log.cuts)
            self._starts_at(position, groups)
        self._reset = False
        self._topic = topic
        self._starts = {} if position.from_beginning else newest_batch_ends(self._checkpoint).committed or None
        self._known_tables.remember()
        self.health.started_reading(
            from_beginning=position.from_beginning,
            tombstone_retention=timedelta(milliseconds=topic.delete_retention_ms),
            is_incomplete=bool(position.read_again),
        )
        self.report(self._start_line(topic, position))
        once = self.config.once
        self.progress.end_known_at = datetime.now(timezone.utc) if once else None
        require_partitions(self._spark, self._properties, topic)
        most, starting = self.config.max_offsets_per_trigger, position.starting
        records = read_stream(self._spark, self._properties, topic, most, starting)
        write_batch = self._batch_writer(topic, position)

        def write(batch: DataFrame, batch_id: int) -> None:
            self._writer.check_owner()
            write_batch(batch, batch_id)
            if position.until:
                ends = read_batch_ends(self._checkpoint, batch_id)
                if finish_reading(self._writer, self._checkpoint, position, ends):
                    position.until.clear()
                    self._rows_changed()

        self.progress.starting()
        # A part of the query: anything that is added per batch would be planned, and sent to the JVM, for each batch.
        trigger = None if once else self._trigger
        return self.query.start(self.wanted(records), write, trigger, self.busy_seconds)

    def check(self) -> None:
        """Check that the running query may go on.

        Raises StreamChangedError when it must be started again, UnreachableError when no broker answers,
        OtherTopicError when the topic was created again, NothingReadError when Spark returns none of the records that
        the brokers have, and other errors as `start` does.
        """
        self._writer.check_owner()
        topic = self._client.describe(to_read=False)
        check_same_topic(self._checkpoint, topic)
        if self._topic and topic.partitions > self._topic.partitions:
            raise StreamChangedError(f"The topic now has {topic.partitions} partitions")
        try:
            self._positions.check(topic.start_offsets)
        except TruncatedLogError as error:
            raise LogTruncatedError(str(error)) from None
        try:
            self._known_tables.check()
        except LostTableError as error:
            raise StreamChangedError(str(error)) from None
        if self.progress.has_ended_trigger:
            self._require_records()
        self._check_coordinator()

    def _check_coordinator(self) -> None:
        """Raise StreamChangedError if Spark waits for a coordinator that hangs: with another one it may go on."""
        if self._topic is None or not self.query.is_asking_for_ends:
            return
        is_well = self._client.coordinator_answers(self._topic.group_id)
        if not is_well and self.query.is_asking_for_ends:
            raise StreamChangedError(f"The coordinator of group {self._topic.group_id} does not answer")

    def _require_records(self) -> None:
        """Raise NothingReadError if Spark has returned none of the records that the brokers have."""
        if self._topic and self._starts is not None and not self.progress.records:
            ends = self.progress.ends or self._topic.end_offsets
            require_records(self._properties, self._topic, self._starts, ends)
            self._starts = {**self._starts, **ends}

    def progress_service(self) -> Service:
        """Return the service that reports the batches; the thread of the stream itself may wait for brokers."""
        return Service(f"batches of {self.name or 'groups'}", self.report, interval=_LOOK_SECONDS, do=self._look)

    def _look(self) -> None:
        query = self.query.current
        try:
            if query is not None:
                self.progress.look_at(query)
        except Exception as error:
            if not is_lost_connection(error):  # a lost connection ends the stream
                raise

    def maintenance_service(self) -> Service:
        """Return the service that maintains the tables next to the stream (see `tables.maintenance`)."""
        return Service("maintenance", self.report, interval=_MAINTENANCE_SECONDS, do=self._maintain)

    def _maintain(self) -> None:
        # In the pool of the second stream: the batches of the streams groups have precedence.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", OFFSETS)
        self._maintenance.run()

    def finish(self) -> None:
        """Note that the stream is done, with `once`, and run due maintenance. Raises NothingReadError."""
        self._require_records()
        self.health.nothing_new(self.progress.end_known_at)
        self._maintenance.run()

    def close(self) -> None:
        """Release the resources of the stream."""
        self._client.close()
        self._positions.close()

    # The methods that a stream may override.

    def _before_start(self) -> None:  # noqa: B027
        """Prepare the start, once brokers have answered."""

    def _query_tables(self) -> QueryTables | None:
        """Return the tables that the query writes; None for the tables of the groups."""
        return None

    def _groups_to_read_again(self) -> Collection[str]:
        return ()

    def _starts_at(self, position: StartPosition, group_ids: Collection[str]) -> None:  # noqa: B027
        """Note where the query starts, and that it reads these groups again."""

    def _rows_changed(self) -> None:  # noqa: B027
        """Note that rows were deleted outside a batch."""

    def _start_line(self, topic: OffsetsTopic, position: StartPosition) -> str:
        del topic
        return position.message

    @abstractmethod
    def _batch_writer(self, topic: OffsetsTopic, position: StartPosition) -> Callable[[DataFrame, int], None]:
        """Return the function that writes the batches of a query with this start."""


class GroupsStream(TopicStream):
    """The stream of the streams groups."""

    wanted = staticmethod(source.wanted_records)

    def __init__(self, parts: StreamParts, topics: TopicMetadata, services: BackgroundServices) -> None:
        """Prepare; `topics` finds the reasons of NotReady."""
        config = parts.config
        done_at = config.warehouse / "_jobs" / f"{config.cluster}.maintenance"
        maintenance = partial(Maintenance, parts.writer, done_at)
        super().__init__(parts, checkpoint_location(config.warehouse, config.cluster), config.trigger, maintenance)
        self.busy_seconds = min(2 * config.trigger, _BUSY_SECONDS)
        self._topics, self._services, self._logs = topics, services, LogReaders(parts.properties)
        self._read_again = services.read_again
        self._plugin_read_at = -math.inf

    def check(self) -> None:
        """Check as every stream does, and sometimes read again whether the brokers have a description plugin."""
        super().check()
        with suppress(WarehouseError):  # a store that is away for a moment: the next check asks again
            if due := self._read_again.due():
                raise StreamChangedError(f"Records of {count(len(due), 'group')} must be read again")
        if time.monotonic() >= self._plugin_read_at + _READ_PLUGIN_SECONDS:
            self._before_start()

    def _before_start(self) -> None:
        """Read again whether the brokers have a description plugin: it may have been configured or removed."""
        self._plugin_read_at = time.monotonic()
        self._services.description_plugin(exists=has_description_plugin(self._properties))

    def _groups_to_read_again(self) -> Collection[str]:
        return self._read_again.due()

    def _starts_at(self, position: StartPosition, group_ids: Collection[str]) -> None:
        self._read_again.done(group_ids)
        if position.read_again:
            self._rows_changed()

    def _rows_changed(self) -> None:
        self._services.group_cache.on_bulk_change()

    def _start_line(self, topic: OffsetsTopic, position: StartPosition) -> str:
        size = f"{topic.partitions} partitions, {topic.offsets:,} offsets"
        return f"{topic.name} at {self.config.bootstrap_server}: {size}; {position.message}"

    def _batch_writer(self, topic: OffsetsTopic, position: StartPosition) -> GroupsBatchWriter:
        return GroupsBatchWriter(
            self._writer,
            self.config.cluster,
            topic.name,
            self.progress.on_done,
            history_offsets=position.history_offsets,
            partitions=topic.partitions,
            partitions_grew=position.partitions_grew,
            topics=self._topics,
            open_log=partial(self._logs.open, topic.name),
            positions=self._positions,
            maintenance=self._maintenance,
            listener=self._services.group_cache,
            dialect=self.config.dialect,
            budget=Budget(**dict(self.config.group_budget)),
            free_heap=self._free_heap,
        )

    def _free_heap(self) -> None:
        """Let the JVM collect garbage after a large batch, and return the memory; it rarely does so by itself.

        In a user's session the heap may be large, and a collection would pause the user's work.
        """
        if not self.config.given_session:
            self._spark._jvm.System.gc()  # type: ignore[union-attr] # noqa: SLF001 - the JVM has no public name


class CommitsStream(TopicStream):
    """The stream of committed offsets, and of groups of every type."""

    name = OFFSETS
    watched = (*NAMES, *SHARED)
    wanted = staticmethod(newest_records.wanted_records)

    def __init__(self, parts: StreamParts) -> None:
        """Prepare."""
        config = parts.config
        self._tables = NewestTables(parts.writer, config.cluster, config.retention_days)
        checkpoint = commits_checkpoint_location(config.warehouse, config.cluster)
        done_at = config.warehouse / "_jobs" / f"{config.cluster}.offsets-upkeep"
        maintenance = partial(Maintenance, self._tables, done_at, tables=[table(name) for name in NAMES])
        super().__init__(parts, checkpoint, config.offsets.trigger, maintenance)

    def _query_tables(self) -> QueryTables:
        return QueryTables(
            name=COMMITS,
            has_rows=lambda: any(self._tables.count_rows(name) for name in NAMES),
            delete=self._tables.delete,
            outdate=self._tables.delete,
            versions=TableVersions(self._writer, self._checkpoint, NAMES, shared=SHARED),
            own_rows=OWN_ROWS,
            state=NAMES,
        )

    def _batch_writer(self, topic: OffsetsTopic, position: StartPosition) -> CommitsBatchWriter:
        options = FoldOptions(
            self.config.cluster,
            topic.name,
            self.config.dialect,
            topic.partitions,
            position.partitions_grew,
            chains=self._positions.chains,
        )
        return CommitsBatchWriter(
            self._writer,
            self._tables,
            options,
            self.progress.on_done,
            maintenance=self._maintenance,
            positions=self._positions,
        )

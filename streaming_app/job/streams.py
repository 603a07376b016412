"""The two streams of the job: how each query is started, each time, and whether it may go on.

Both read the offsets topic, each with a checkpoint and a health of its own: that of the streams groups, and that of the
committed offsets and the groups of every type. The second one runs in a thread of its own, and in a pool of Spark's
scheduler of its own, so that the streams groups wait neither for its batches nor for its failures.

Everything that a start depends on may change while the job runs: the topic may get partitions, tables may be lost, the
brokers may be away for longer than tombstones are kept. So each start of a query, and not only the first one of the
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
from streaming_app.job.read_again import GroupsToReadAgain
from streaming_app.job.self_check import SelfCheck, make_self_check
from streaming_app.job.services import SELF_CHECK, MaintenanceService
from streaming_app.job.stream_query import (
    OFFSETS,
    LogTruncatedError,
    StreamChangedError,
    StreamQuery,
)
from streaming_app.kafka.broker_facts import has_description_plugin
from streaming_app.kafka.log_reader import LogReaders
from streaming_app.kafka.offsets_topic import (
    TopicIdentity,
    coordinator_answers,
    describe_offsets_topic,
)
from streaming_app.report import Report
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
    from streaming_app.kafka.offsets_topic import OffsetsTopic
    from streaming_app.kafka.topic_metadata import TopicMetadata
    from streaming_app.stream.health import Health
    from streaming_app.tables.location import Location
    from streaming_app.tables.writer import TableWriter

_READ_PLUGIN_SECONDS = 3600.0


@dataclass(frozen=True)
class StreamParts:
    """What a stream is built of."""

    spark: SparkSession
    config: JobConfig
    properties: Mapping[str, str]
    """Kafka client properties."""
    writer: TableWriter
    health: Health
    report: Report
    stop: threading.Event
    """No batch begins once it is set."""


class TopicStream(ABC):
    """Starts a query of one job, any number of times."""

    name: ClassVar[str | None] = None
    watched: ClassVar[Sequence[str] | None] = None
    """The tables whose loss ends the query; None: all."""

    def __init__(
        self,
        parts: StreamParts,
        checkpoint: Location,
        progress: Progress,
        maintenance: Callable[..., Maintenance],
    ) -> None:
        self._lock = threading.Lock()  # held by each batch, and by each task of the maintenance
        self._maintenance = maintenance(
            retention_days=parts.config.retention_days,
            report=parts.report,
            on_failure=parts.health.maintenance_failed,
            is_stopping=parts.stop.is_set,
            between_batches=self._lock,
        )
        self._spark, self._config, self._properties = parts.spark, parts.config, parts.properties
        self._writer, self._health, self._report, self._stop = parts.writer, parts.health, parts.report, parts.stop
        self._checkpoint = checkpoint
        self._reset = parts.config.reset  # for the first start only
        self._topic: OffsetsTopic | None = None
        self._starts: Mapping[int, int] | None = None  # None: not known
        self._topic_identity = TopicIdentity(parts.spark, parts.properties)
        self._positions = LogPositions(
            parts.properties,
            parts.writer.files,
            checkpoint,
            parts.report,
            parts.stop,
            on_cut=parts.health.log_cut,
        )
        self._query = StreamQuery(checkpoint, parts.stop, self.name)
        self._known_tables = KnownTables(parts.config.warehouse, self.watched)
        self.progress = progress

    @property
    def is_writing(self) -> bool:
        """Whether a batch is being written."""
        return self._query.is_writing

    def is_own(self, description: str) -> bool:
        """Return whether Spark describes so a query that this stream runs."""
        return self._query.is_own(description)

    def start(self) -> StreamingQuery:
        """Describe the topic, make checkpoint and tables fit it, and start the query.

        Raises UnreachableError or MissingTopicError when there is nothing to read yet, another JobError when the topic
        may not be read, StopRequestedError when the job ends, and the errors of Spark and delta-rs.
        """
        self._wait_for_last()
        self._writer.check_owner()
        self._spark.sparkContext.setJobDescription(self._query.start_description)  # of this thread's queries
        topic = self._describe_topic()
        with self._lock:  # a maintenance that runs would find tables that come and go
            self._before_start()
            self._writer.prepare(self._report)
            log = self._positions.open(topic, newest_batch_ends(self._checkpoint))
            position = prepare_start(
                self._writer,
                self._checkpoint,
                topic,
                reset=self._reset,
                away=self._health.time_away(),
                tables=self._query_tables(),
                log=log,
                groups=(groups := self._groups_to_read_again()),
            )
            self._positions.started(log.cuts)
            self._reads_again(groups)
        self._reset = False
        self._topic = topic
        self._starts = {} if position.from_beginning else newest_batch_ends(self._checkpoint).committed or None
        self._known_tables.remember()
        self._found(position)
        self._topic_identity.remember(topic)
        self._health.started_reading(
            from_beginning=position.from_beginning,
            tombstone_retention=timedelta(milliseconds=topic.delete_retention_ms),
            is_incomplete=bool(position.read_again),
        )
        self._report(self._start_line(topic, position))
        once = self._config.once
        self.progress.end_known_at = datetime.now(timezone.utc) if once else None
        require_partitions(self._spark, self._properties, topic)
        most, starting = self._config.max_offsets_per_trigger, position.starting
        records = read_stream(self._spark, self._properties, topic, most, starting)
        return self._start_query(records, topic, position, None if once else self._trigger)

    def look_at(self, query: StreamingQuery) -> None:
        """Note that there is nothing to read, if Spark posts no event of it."""
        self.progress.look_at(query)

    def check(self) -> None:
        """Check that the running query may go on.

        Raises StreamChangedError when it must be started again, UnreachableError when no broker answers,
        OtherTopicError when the topic was created again, NothingReadError when Spark returns none of the records that
        the brokers have, and other errors as `start` does.
        """
        self._writer.check_owner()
        topic = self._describe_topic(to_read=False)
        check_same_topic(self._writer.files, self._checkpoint, topic)
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
            self.require_records()
        self._check_coordinator()

    def _check_coordinator(self) -> None:
        """Raise StreamChangedError if Spark waits for a coordinator that does not answer: another one may."""
        if self._topic is None or not self._query.is_asking_for_ends:
            return
        is_well = coordinator_answers(self._spark, self._properties, self._topic.name, self._topic.group_id)
        if not is_well and self._query.is_asking_for_ends:
            raise StreamChangedError(f"The coordinator of group {self._topic.group_id} does not answer")

    def require_records(self) -> None:
        """Raise NothingReadError if Spark has returned none of the records that the brokers have."""
        if self._topic and self._starts is not None and not self.progress.records:
            ends = self.progress.ends or self._topic.end_offsets
            require_records(self._properties, self._topic, self._starts, ends)
            self._starts = {**self._starts, **ends}

    def make_maintenance_service(self) -> MaintenanceService:
        """Return what runs the maintenance of the tables beside the stream."""
        return MaintenanceService(self._maintenance, self._spark, self._report)

    def maintain(self) -> None:
        """Run the maintenance that is due, with `once`, when the stream is done."""
        self._maintenance.run()

    def close(self) -> None:
        """Release what the stream holds."""
        self._topic_identity.close()
        self._positions.close()

    @property
    @abstractmethod
    def _trigger(self) -> float:
        """Seconds between two batches, at least."""

    def _wait_for_last(self) -> None:
        """Wait until the query before writes no batch."""
        self._query.wait_for_batch()

    def _describe_topic(self, *, to_read: bool = True) -> OffsetsTopic:
        return describe_offsets_topic(self._spark, self._properties, self._config.topic, to_read=to_read)

    @abstractmethod
    def _before_start(self) -> None:
        """Do what the start depends on, once brokers have answered."""

    @abstractmethod
    def _query_tables(self) -> QueryTables | None:
        """Return the tables that the query writes; None for those of the groups."""

    def _groups_to_read_again(self) -> Collection[str]:
        """Return the groups that are to be read again."""
        return ()

    def _reads_again(self, group_ids: Collection[str]) -> None:  # noqa: B027 - one of them has something to do
        """Note that the query reads these groups again."""

    def _found(self, position: StartPosition) -> None:  # noqa: B027 - as above
        """Note where the query starts."""

    @abstractmethod
    def _start_line(self, topic: OffsetsTopic, position: StartPosition) -> str:
        """Return the line about a start."""

    @abstractmethod
    def _start_query(
        self, records: DataFrame, topic: OffsetsTopic, position: StartPosition, trigger: float | None
    ) -> StreamingQuery:
        """Start the query that writes these records."""


class GroupsStream(TopicStream):
    """The stream of the streams groups."""

    def __init__(self, parts: StreamParts, topics: TopicMetadata, services: BackgroundServices) -> None:
        """Prepare; `topics` finds the reasons of NotReady."""
        config = parts.config
        checkpoint = checkpoint_location(config.warehouse, config.cluster)
        done_at = config.warehouse / "_jobs" / f"{config.cluster}.maintenance"
        progress = Progress(parts.report, parts.health)
        super().__init__(parts, checkpoint, progress, partial(Maintenance, parts.writer, done_at))
        self._topics, self._services, self._logs = topics, services, LogReaders(parts.properties)
        self._read_again = GroupsToReadAgain(config.warehouse, config.cluster)
        self._plugin_read_at = -math.inf

    def check(self) -> None:
        """Check as every stream, and read from time to time whether the brokers have a description plugin."""
        super().check()
        with suppress(WarehouseError):  # a store that is away for a moment: the next check asks again
            if due := self._read_again.due():
                raise StreamChangedError(f"Records of {count(len(due), 'group')} are to be read again")
        if time.monotonic() >= self._plugin_read_at + _READ_PLUGIN_SECONDS:
            self._read_description_plugin()

    @property
    def _trigger(self) -> float:
        return self._config.trigger

    def _wait_for_last(self) -> None:
        self._services.stop_of_query()
        super()._wait_for_last()
        self.progress.forget_runs()

    def _before_start(self) -> None:
        self._read_description_plugin()

    def _query_tables(self) -> None:
        return None

    def _groups_to_read_again(self) -> Collection[str]:
        return self._read_again.due()

    def _reads_again(self, group_ids: Collection[str]) -> None:
        self._read_again.done(group_ids)

    def _found(self, position: StartPosition) -> None:
        if position.read_again:
            self._services.group_cache.on_bulk_change()

    def _read_description_plugin(self) -> None:
        """Read again whether the brokers have a description plugin: it may be configured or removed meanwhile."""
        self._plugin_read_at = time.monotonic()
        self._services.description_plugin(exists=has_description_plugin(self._properties))

    def _start_line(self, topic: OffsetsTopic, position: StartPosition) -> str:
        size = f"{topic.partitions} partitions, {topic.offsets:,} offsets"
        return f"{topic.name} at {self._config.bootstrap_server}: {size}; {position.message}"

    def _start_query(
        self, records: DataFrame, topic: OffsetsTopic, position: StartPosition, trigger: float | None
    ) -> StreamingQuery:
        write_batch = GroupsBatchWriter(
            self._writer,
            self._config.cluster,
            topic.name,
            self.progress.on_done,
            history_offsets=position.history_offsets,
            partitions=topic.partitions,
            partitions_grew=position.partitions_grew,
            topics=self._topics,
            open_log=partial(self._logs.open, topic.name),
            check_topic=self._topic_identity.check,
            positions=self._positions,
            maintenance=self._maintenance,
            listener=self._services.group_cache,
            dialect=self._config.dialect,
            lock=self._lock,
            budget=self._config.group_budget.budget(),
            free_heap=self._free_heap,
        )

        def write(batch: DataFrame, batch_id: int) -> None:
            self._writer.check_owner()
            write_batch(batch, batch_id)
            if position.until:
                self._finish_reading(position, batch_id)

        query = self._query.start(records, write, trigger)
        if not self._stop.is_set():
            self._start_services()
        return query

    def _finish_reading(self, position: StartPosition, batch_id: int) -> None:
        with self._lock:
            if finish_reading(self._writer, self._checkpoint, position, read_batch_ends(self._checkpoint, batch_id)):
                position.until.clear()
                self._services.group_cache.on_bulk_change()

    def _free_heap(self) -> None:
        """Let the JVM collect what a large batch has left, and give the memory back: by itself it does so rarely.

        In a session of somebody else the heap may be large, and a collection stop what they do there.
        """
        if not self._config.given_session:
            self._spark._jvm.System.gc()  # type: ignore[union-attr] # noqa: SLF001 - the JVM has no public name

    def _start_services(self) -> None:
        """Start what looks at the tables while this query runs."""

        def self_check() -> SelfCheck:
            ask = self._read_again.ask
            return make_self_check(self._config, self._properties, ask, health=self._health, report=self._report)

        self._services.start_of_query({SELF_CHECK: self_check})


class CommitsStream(TopicStream):
    """The stream of committed offsets, and of groups of every type."""

    name = OFFSETS
    watched = (*NAMES, *SHARED)

    def __init__(self, parts: StreamParts) -> None:
        """Prepare."""
        config = parts.config
        self._tables = NewestTables(parts.writer, config.cluster, config.retention_days)
        checkpoint = commits_checkpoint_location(config.warehouse, config.cluster)
        done_at = config.warehouse / "_jobs" / f"{config.cluster}.offsets-upkeep"
        own = [table(name) for name in NAMES]
        progress = Progress(parts.report, parts.health, OFFSETS)
        maintenance = partial(Maintenance, self._tables, done_at, tables=own)
        super().__init__(parts, checkpoint, progress, maintenance)

    def finish(self) -> None:
        """Record that the stream is done, with `once`."""
        self._health.nothing_new(self.progress.end_known_at)

    @property
    def _trigger(self) -> float:
        return self._config.offsets.trigger

    def _before_start(self) -> None:
        # The threads of a query inherit this. In the default pool its tasks would run before those of later batches.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", OFFSETS)

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

    def _start_line(self, topic: OffsetsTopic, position: StartPosition) -> str:
        del topic
        return position.message

    def _start_query(
        self, records: DataFrame, topic: OffsetsTopic, position: StartPosition, trigger: float | None
    ) -> StreamingQuery:
        options = FoldOptions(
            self._config.cluster,
            topic.name,
            self._config.dialect,
            topic.partitions,
            position.partitions_grew,
            chains=self._positions.chains,
        )
        write_batch = CommitsBatchWriter(
            self._writer,
            self._tables,
            options,
            self.progress.on_done,
            maintenance=self._maintenance,
            check_topic=self._topic_identity.check,
            positions=self._positions,
            lock=self._lock,
        )

        def write(batch: DataFrame, batch_id: int) -> None:
            self._writer.check_owner()
            write_batch(batch, batch_id)

        return self._query.start(records, write, trigger)

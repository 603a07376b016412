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
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import ClassVar, NamedTuple

from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming_app.errors import OtherOwnerError, StorageError, StreamChangedError, WarehouseError
from streaming_app.groups.budget import Budget
from streaming_app.job.service import Job, Service
from streaming_app.job.services import BackgroundServices
from streaming_app.job.stream_query import OFFSETS, StreamQuery
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.fact_requests import has_description_plugin
from streaming_app.kafka.offsets_topic import OffsetsTopic, OffsetsTopicClient, check_topic_id
from streaming_app.kafka.topic_reader import PartitionCounts
from streaming_app.stream import newest_records, source
from streaming_app.stream.commits_writer import OWN_ROWS, SHARED, CommitsBatchWriter
from streaming_app.stream.epoch_chain import epoch_at
from streaming_app.stream.failures import is_lost_jvm
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.stream.job_state import CommittedBatch
from streaming_app.stream.log_positions import LogPositions
from streaming_app.stream.offset_acts import Act
from streaming_app.stream.progress import Progress
from streaming_app.stream.source import read_stream, require_partitions
from streaming_app.stream.start import QueryTables, StartPosition, finish_reading, group_tables, prepare_start
from streaming_app.stream.stream_state import StateFile
from streaming_app.stream.table_versions import TableVersions
from streaming_app.tables.arrow import release_memory
from streaming_app.tables.checkpoint_offsets import (
    checkpoint_location,
    commits_checkpoint_location,
    newest_batch_ends,
    read_batch_ends,
)
from streaming_app.tables.location import Location
from streaming_app.tables.newest_tables import NAMES, NewestTables
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.writer import TableWriter
from streaming_app.text import count

_READ_PLUGIN_SECONDS = 3600.0
_BUSY_SECONDS = 1.0  # between two batches of groups while commits keep coming: each batch has a fixed cost
_LOOK_SECONDS = 1.0  # between two checks of a query's progress: each takes some calls of the JVM


class Shared(NamedTuple):
    """What a stream shares with others."""

    job: Job
    spark: SparkSession
    connection: SharedConnection[Admin]
    writer: TableWriter


class TopicStream(ABC):
    """Starts a query of one job, any number of times."""

    name: ClassVar[str | None] = None
    wanted: ClassVar[staticmethod[[DataFrame], DataFrame]]
    """Selects the records of a batch from the records of the Kafka source."""
    busy_seconds = 0.0
    """The time between batches while records keep coming, if it is more than the trigger."""

    def __init__(self, shared: Shared, checkpoint: Location, trigger: float) -> None:
        job, self._spark, connection, self._writer = shared
        self.stopping = threading.Event()
        """No batch begins once it is set."""
        self.query = StreamQuery(checkpoint, self.stopping, self.name)
        self.config, self.health, self.report = job.config, job.health, job.report
        self._properties, self._checkpoint, self._trigger = connection.properties, checkpoint, trigger
        self._reset = job.config.reset  # for the first start only
        self._topic: OffsetsTopic | None = None
        self._client = OffsetsTopicClient(connection, self.config.topic, self._spark, self.stopping)
        self._state = StateFile(checkpoint)
        self._positions = LogPositions(self._client, self._state, self.report, on_cut=self.health.log_cut)
        self._versions: TableVersions | None = None  # of the tables of the query
        self.progress = Progress(self.report, self.health)

    def start(self) -> StreamingQuery:
        """Describe the topic, make checkpoint and tables fit it, and start the query.

        Raises UnreachableError or MissingTopicError when there is nothing to read yet, another JobError when the topic
        may not be read, StopRequestedError when the job ends, and the errors of Spark and delta-rs.
        """
        self.health.is_reading = False
        self.query.no_batch.wait()
        self._writer.check_owner()
        context = self._spark.sparkContext
        context.setJobDescription(self.query.start_description)  # for the queries of this thread
        if self.name:  # the threads of a query inherit it: in the default pool its tasks would delay the other stream
            context.setLocalProperty("spark.scheduler.pool", self.name)
        topic, tables = self._client.describe(), self._query_tables()
        self._writer.prepare(self.report)
        self._state.read()
        log = self._positions.open(topic, newest_batch_ends(self._checkpoint))
        position = prepare_start(
            self._writer,
            self._checkpoint,
            self._state,
            topic,
            reset=self._reset,
            away=self.health.time_away(),
            tables=tables,
            log=log,
            groups=(groups := self._groups_to_read_again()),
        )
        self._positions.started(log.cuts)
        self._reset = False
        self._topic = topic
        self._versions = tables.versions
        self._versions.remember()
        self.health.started_reading(
            from_beginning=position.from_beginning,
            tombstone_retention=timedelta(milliseconds=topic.delete_retention_ms),
            is_incomplete=bool(position.read_again),
        )
        self._report_start(topic, position, groups)
        self.progress.end_known_at = datetime.now(timezone.utc) if self.config.once else None
        require_partitions(self._spark, self._properties, topic)
        most, starting = self.config.max_offsets_per_trigger, position.state.starting
        records = read_stream(self._spark, self._properties, topic, most, starting)
        write_batch = self._batch_writer(topic, position)

        def write(batch: DataFrame, batch_id: int) -> bool:
            self._writer.check_owner()
            has_records = write_batch(batch, batch_id)
            ends = read_batch_ends(self._checkpoint, batch_id) if self._state.state.until else None
            if finish_reading(tables, self._state, ends):
                self._rows_changed()
            return has_records

        self.progress.starting()
        # A part of the query: anything that is added per batch would be planned, and sent to the JVM, for each batch.
        trigger = None if self.config.once else self._trigger
        return self.query.start(self.wanted(records), write, trigger, self.busy_seconds)

    def check(self) -> None:
        """Check that the running query may go on.

        Raises StreamChangedError when it must be started again, UnreachableError when no broker answers,
        OtherTopicError when the topic was created again, StorageError when only checkpoint or tables cannot be read,
        and other errors as `start` does.
        """
        self._writer.check_owner()
        topic = self._client.describe(to_read=False)
        check_topic_id(topic.name, self._state.state.topic_id or topic.topic_id, topic.topic_id)
        if self._topic and topic.partitions > self._topic.partitions:
            raise StreamChangedError(f"The topic now has {topic.partitions} partitions")
        self._positions.check(topic.start_offsets)
        try:
            if self._versions:
                self._versions.check()
            self._note_tables()
        except (DeltaError, OSError) as error:
            raise StorageError(f"Cannot read {self.config.warehouse}: {describe_error(error)}") from None
        if self._topic is None or not self.query.is_asking_for_ends:
            return
        # Spark waits for a coordinator that hangs without a limit: with another one it may go on.
        answers = self._client.coordinator_answers(self._topic.group_id)
        if not answers and self.query.is_asking_for_ends:
            raise StreamChangedError(f"The coordinator of group {self._topic.group_id} does not answer")

    def reporting(self) -> Service:
        """Return the service that reports the batches of the stream."""
        return Service(f"batches of {self.name or 'groups'}", self.report, interval=_LOOK_SECONDS, do=self._poll)

    def _poll(self) -> None:
        query = self.query.current
        try:
            if query is not None:
                self.progress.poll(query)
        except Exception as error:
            if not is_lost_jvm(error):  # a lost connection ends the stream
                raise

    def finish(self) -> None:
        """Note that the stream is done, with `once`."""
        self.health.nothing_new(self.progress.end_known_at)

    def close(self) -> None:
        """Note the last versions of the tables of the stream, which has ended."""
        with suppress(DeltaError, OSError, OtherOwnerError):  # then a start reads more of the tables' logs
            self._writer.check_owner()
            self._note_tables()

    def _note_tables(self) -> None:
        """Store the versions of the tables after a maintenance, or writes of the other stream; not during a batch."""
        if self._versions and self.query.lock.acquire(blocking=False):
            try:
                self._between_batches()
                self._versions.refresh()
            finally:
                self.query.lock.release()

    def _fold_options(self, topic: OffsetsTopic, position: StartPosition) -> FoldOptions:
        """Return what is the same for every batch of a query that starts there."""
        return FoldOptions(
            self.config.cluster,
            topic.name,
            topic.partitions,
            position.state.partitions_grew,
            position.state.history,
            self._positions.chains,
            Budget(**dict(self.config.group_budget)),
            self.config.classic_streams.enabled,
        )

    # The methods that a stream may override.

    @abstractmethod
    def _query_tables(self) -> QueryTables:
        """Return the tables that the query writes."""

    def _groups_to_read_again(self) -> Collection[str]:
        return ()

    def _between_batches(self) -> None:  # noqa: B027
        """Do what waits for the other stream, every half minute and at the end."""

    def _rows_changed(self) -> None:  # noqa: B027
        """Note that rows were deleted outside a batch."""

    def _report_start(self, topic: OffsetsTopic, position: StartPosition, group_ids: Collection[str]) -> None:
        """Report where the query starts; it reads these groups again."""
        del topic, group_ids
        self.report(position.message)

    @abstractmethod
    def _batch_writer(self, topic: OffsetsTopic, position: StartPosition) -> Callable[[DataFrame, int], bool]:
        """Return the function that writes the batches of a query with this start: whether one had any records."""


class GroupsStream(TopicStream):
    """The stream of the streams groups."""

    wanted = staticmethod(source.wanted_records)

    def __init__(self, shared: Shared, services: BackgroundServices) -> None:
        config, self._connection = shared.job.config, shared.connection
        super().__init__(shared, checkpoint_location(config.warehouse, config.cluster), config.trigger)
        self.busy_seconds = min(2 * config.trigger, _BUSY_SECONDS)
        self._services, self._topics = services, PartitionCounts(self._connection, self.report)
        self._read_again = services.read_again
        self._plugin_read_at = -math.inf
        self._read_until: Mapping[int, int] = {}  # by partition, up to where the tables have the groups

    def has_read(self, act: Act) -> bool:
        """Return whether the tables have what the log says of the groups up to this act."""
        partition, offset, epoch = act["source_partition"], act["offset"], act["log_epoch"]
        if self._read_until.get(partition, 0) <= offset:
            return False
        known = epoch_at(self._positions.chains.get(partition, ()), offset)
        return known == epoch or None in {known, epoch}  # else only the other query has found yet that the log was cut

    def check(self) -> None:
        """Check as every stream does, and sometimes read again whether the brokers have a description plugin."""
        super().check()
        with suppress(WarehouseError):  # a store that is away for a moment: the next check asks again
            if due := self._read_again.requested():
                raise StreamChangedError(f"Records of {count(len(due), 'group')} must be read again")
        if time.monotonic() >= self._plugin_read_at + _READ_PLUGIN_SECONDS:
            self._read_plugin()

    def _read_plugin(self) -> None:
        """Read again whether the brokers have a description plugin: it may have been configured or removed."""
        self._plugin_read_at = time.monotonic()
        self._services.description_plugin(exists=has_description_plugin(self._connection))

    def _query_tables(self) -> QueryTables:
        self._read_until = {}  # until it is known what the log has now
        return group_tables(self._writer, self._checkpoint, self._state)

    def _groups_to_read_again(self) -> Collection[str]:
        return self._read_again.requested()

    def _report_start(self, topic: OffsetsTopic, position: StartPosition, group_ids: Collection[str]) -> None:
        self._read_again.done(group_ids)
        if position.read_again:
            self._rows_changed()
        self._read_plugin()
        size = f"{topic.partitions} partitions, {topic.offsets:,} offsets"
        self.report(f"{topic.name} at {self.config.bootstrap_server}: {size}; {position.message}")

    def _rows_changed(self) -> None:
        self._services.group_cache.on_bulk_change()

    def _on_done(self, batch_id: int, batch: CommittedBatch) -> None:
        self._read_until = batch.ends or self._read_until
        self.progress.on_done(batch_id, batch)

    def _batch_writer(self, topic: OffsetsTopic, position: StartPosition) -> GroupsBatchWriter:
        self._read_until = newest_batch_ends(self._checkpoint).committed or position.state.starting
        return GroupsBatchWriter(
            self._writer,
            self._fold_options(topic, position),
            self._on_done,
            topics=self._topics,
            state=self._state,
            positions=self._positions,
            listener=self._services.group_cache,
            free_heap=self._free_heap,
        )

    def _free_heap(self) -> None:
        """Return the memory of a large batch.

        In a user's session the heap of the JVM may be large, and a collection would pause the user's work.
        """
        release_memory()
        if not self.config.given_session:
            self._spark._jvm.System.gc()  # type: ignore[union-attr] # noqa: SLF001 - the JVM has no public name


class CommitsStream(TopicStream):
    """The stream of committed offsets, and of groups of every type."""

    name = OFFSETS
    wanted = staticmethod(newest_records.wanted_records)

    def __init__(self, shared: Shared, groups: GroupsStream) -> None:
        config, self._groups = shared.job.config, groups
        self._batches: CommitsBatchWriter | None = None  # of the running query
        self._tables = NewestTables(shared.writer, config.cluster, config.retention_days)
        checkpoint = commits_checkpoint_location(config.warehouse, config.cluster)
        super().__init__(shared, checkpoint, config.offsets.trigger)

    def _between_batches(self) -> None:
        if self._batches:
            self._batches.tell_acts()

    def _query_tables(self) -> QueryTables:
        self._batches = None  # what is about to start finds other acts
        return QueryTables(
            self._writer,
            NAMES,
            mark=self._tables.mark,
            versions=TableVersions(self._writer, self._checkpoint, self._state, NAMES, shared=SHARED),
            own_rows=OWN_ROWS,
        )

    def _batch_writer(self, topic: OffsetsTopic, position: StartPosition) -> CommitsBatchWriter:
        self._batches = CommitsBatchWriter(
            self._writer,
            self._tables,
            self._fold_options(topic, position),
            self.progress.on_done,
            state=self._state,
            positions=self._positions,
            groups_are_read=self._groups.has_read,
        )
        return self._batches

"""A topic that is deleted and created again under a running stream: what was read of the new one is not written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from offsets_decoder import encode
from streaming_app.errors import OtherTopicError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.offsets_topic import OffsetsTopic, OffsetsTopicClient
from streaming_app.kafka.properties import client_properties
from streaming_app.kafka.topic_reader import format_topic_id
from streaming_app.stream.commits_writer import CommitsBatchWriter
from streaming_app.stream.group_result import FoldOptions
from streaming_app.stream.groups_writer import GroupsBatchWriter
from streaming_app.stream.log_positions import LogPositions, NoPositions, read_whole
from streaming_app.stream.stream_state import StateFile
from streaming_app.tables.checkpoint_offsets import BatchEnds, checkpoint_location, commits_checkpoint_location
from streaming_app.tables.location import Location
from streaming_app.tables.newest_tables import NewestTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.container import Broker
from tests.support.frames import Row, batch, limit_driver, offsets_batch, write_offset_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)
RECORDS = [
    (0, AT, *encode(17, {"group_id": "g"}, {"epoch": 2, "last_assignment_configs": []})),
    (1, AT, *encode(1, {"group": "g", "topic": "in", "partition": 0}, {"offset": 7})),
]
WRITTEN = ("groups", "group_events", "group_records", "offset_commits", "quarantine")


class OfAnother(NoPositions):
    """Finds that the records that were read may be of another topic."""

    def after_read(self, ends: Mapping[int, int] | None) -> bool:
        raise OtherTopicError(f"another one at {ends}")


def main_stream(writer: TableWriter) -> Callable[[DataFrame, int], None]:
    return GroupsBatchWriter(
        writer, FoldOptions("default", "topic"), lambda *_: pytest.fail("done"), positions=OfAnother()
    )


def second_stream(writer: TableWriter) -> Callable[[DataFrame, int], None]:
    tables, options = NewestTables(writer, "default", 30), FoldOptions("default", "topic")
    return CommitsBatchWriter(writer, tables, options, lambda *_: pytest.fail("done"), positions=OfAnother())


@pytest.mark.parametrize(
    ("stream", "batch_of", "is_small"),
    [(main_stream, batch, False), (second_stream, offsets_batch, True)],
    ids=["groups, many jobs", "commits, one job"],
)
def test_nothing_of_a_batch_is_written_if_the_topic_is_another_one_by_then(
    spark: SparkSession,
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    stream: Callable[[TableWriter], Callable[[DataFrame, int], None]],
    batch_of: Callable[[SparkSession, Iterable[Row]], DataFrame],
    is_small: bool,
) -> None:
    if is_small:
        for place in (checkpoint_location, commits_checkpoint_location):
            write_offset_log(place(empty_warehouse, "default").path, [2])
    else:
        limit_driver(monkeypatch, records=0)
    write = stream(TableWriter(spark, str(empty_warehouse), "default"))
    with pytest.raises(OtherTopicError):
        write(batch_of(spark, RECORDS), 0)
    reader = WarehouseReader(empty_warehouse)
    assert [reader.rows(f"SELECT * FROM {name}") for name in WRITTEN] == [[]] * len(WRITTEN)


@pytest.mark.broker
def test_what_was_read_while_the_topic_was_created_again_is_refused(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("offsets")
    client.create_topic(name)
    described = client.describe_topics([name])[0]
    checkpoint = Location.of(tmp_path / "checkpoint")
    connection = SharedConnection(client_properties(broker.bootstrap_server, None), Admin)
    positions = LogPositions(OffsetsTopicClient(connection, name, None, Event()), StateFile(checkpoint), pytest.fail)
    topic = OffsetsTopic(name, format_topic_id(UUID(described["topic_id"])) or "", "cluster", {0: 0})
    positions.open(topic, BatchEnds({}, {}))
    assert read_whole(positions, lambda: "read", {0: 0}) == "read"

    def read() -> None:
        client.delete_topic(name)
        client.create_topic(name)

    with pytest.raises(OtherTopicError, match="deleted and created again"):
        read_whole(positions, read, {0: 0})
    connection.close()

"""A topic that is deleted and created again under a running stream: what was read of the new one is not written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from offsets_decoder import encode
from streaming_app.errors import MissingTopicError, OtherTopicError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.offsets_topic import TopicIdentity, describe_offsets_topic
from streaming_app.kafka.properties import client_properties
from streaming_app.sandbox.container import Broker
from streaming_app.stream.commits_batch import CommitsBatchWriter
from streaming_app.stream.groups_batch import GroupsBatchWriter
from streaming_app.stream.outcome import FoldOptions
from streaming_app.tables.checkpoint_offsets import checkpoint_location, commits_checkpoint_location
from streaming_app.tables.newest_tables import NewestTables
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.writer import TableWriter
from tests.support.frames import Row, batch, limit_driver, offsets_batch, write_offset_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2026, 11, 1, tzinfo=timezone.utc)
RECORDS = [
    (0, AT, *encode(17, {"group_id": "g"}, {"epoch": 2, "last_assignment_configs": []})),
    (1, AT, *encode(1, {"group": "g", "topic": "in", "partition": 0}, {"offset": 7})),
]
WRITTEN = ("groups", "group_events", "group_records", "offset_commits", "quarantine")


def refuse() -> None:
    raise OtherTopicError("another one")


def main_stream(writer: TableWriter) -> Callable[[DataFrame, int], None]:
    return GroupsBatchWriter(writer, "default", "topic", lambda *_: pytest.fail("done"), check_topic=refuse)


def second_stream(writer: TableWriter) -> Callable[[DataFrame, int], None]:
    tables, options = NewestTables(writer, "default", 30), FoldOptions("default", "topic")
    return CommitsBatchWriter(writer, tables, options, lambda *_: pytest.fail("done"), check_topic=refuse)


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


def test_the_topic_is_not_asked_for_where_nothing_is_written(spark: SparkSession, empty_warehouse: Path) -> None:
    done = list[int]()
    write_offset_log(checkpoint_location(empty_warehouse, "default").path, [2])
    writer = TableWriter(spark, str(empty_warehouse), "default")
    write = GroupsBatchWriter(writer, "default", "topic", lambda number, _: done.append(number), check_topic=refuse)
    write(batch(spark, RECORDS[1:]), 0)
    assert done == [0]


@pytest.mark.broker
def test_the_identity_of_a_topic_is_known_with_each_check(
    broker: Broker, client: StreamsGroupClient, spark: SparkSession, unique: Callable[[str], str]
) -> None:
    name = unique("offsets")
    client.create_topic(name)
    properties = client_properties(broker.bootstrap_server, None)
    identity = TopicIdentity(spark, properties)
    identity.remember(describe_offsets_topic(spark, properties, name))
    for _ in range(2):
        identity.check()
    client.delete_topic(name)
    with pytest.raises(MissingTopicError):
        identity.check()
    client.create_topic(name)
    with pytest.raises(OtherTopicError, match="deleted and created again"):
        identity.check()
    identity.remember(describe_offsets_topic(spark, properties, name))
    identity.check()
    identity.close()
    identity.check()  # it connects again
    identity.close()

"""What a stream knows of a log while leaders change: what an election crosses is read again, and nothing else is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from streaming_app.errors import OtherTopicError
from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.offsets_topic import OffsetsTopic, OffsetsTopicClient
from streaming_app.stream.log_positions import Cut, LogPositions, TruncatedLogError, read_whole
from streaming_app.stream.stream_state import StateFile
from streaming_app.tables.checkpoint_offsets import BatchEnds
from streaming_app.tables.location import Location
from tests.support.kafka_cluster import LocalCluster

pytestmark = pytest.mark.broker
RECORD = (b"key", b"value")


class Opened:
    """The positions of a stream in a topic of one partition."""

    def __init__(self, cluster: LocalCluster, topic: str, directory: Path) -> None:
        self.lines: list[str] = []
        self.cuts: list[Cut] = []
        self._topic = OffsetsTopic(topic, cluster.topic_id(topic), "cluster", {0: 0})
        self.directory = directory
        connection = SharedConnection({"bootstrap.servers": cluster.bootstrap_server}, Admin)
        self.state = StateFile(Location.of(directory / "checkpoint")).read()
        self.state.note(topic_id=self._topic.topic_id)
        asked = OffsetsTopicClient(connection, topic, None, Event())
        self.positions = LogPositions(asked, self.state, self.lines.append, on_cut=self.cuts.append)

    def open(self, committed: int = 0, begun: int | None = None) -> tuple[Cut, ...]:
        ends = BatchEnds({0: committed}, {0: committed if begun is None else begun})
        self.check = self.positions.open(self._topic, ends)
        return self.check.cuts

    def read(self, end: int) -> int:
        """Read a batch up to an offset; return how often it was read."""
        self.reads = 0

        def read() -> int:
            self.reads += 1
            return self.reads

        return read_whole(self.positions, read, {0: end})


@pytest.fixture
def topic(three_brokers: LocalCluster, unique: Callable[[str], str]) -> str:
    name = unique("positions")
    three_brokers.create_topic(name)
    three_brokers.append(name, *[RECORD] * 3)
    return name


@pytest.fixture
def opened(three_brokers: LocalCluster, topic: str, tmp_path: Path) -> Opened:
    opened = Opened(three_brokers, topic, tmp_path)
    assert opened.open() == ()
    return opened


def test_a_read_that_an_election_crosses_is_repeated(three_brokers: LocalCluster, topic: str, opened: Opened) -> None:
    first = three_brokers.leader_epoch(topic, 0)
    assert opened.read(3) == 1
    reads = []

    def read() -> int:
        reads.append(three_brokers.leader_epoch(topic, 0))
        if len(reads) == 1:
            three_brokers.elect(topic, 0)
            three_brokers.append(topic, RECORD)
        return len(reads)

    assert read_whole(opened.positions, read, {0: 4}) == 2
    newest = three_brokers.leader_epoch(topic, 0)
    assert first < newest
    assert opened.positions.chains[0][-1] == (newest, 3)
    again = Opened(three_brokers, topic, opened.directory)
    assert (again.state.state.ends[0], again.state.state.epochs[0][-2:]) == (4, ((first, 0), (newest, 3)))
    assert again.open(4) == ()
    assert again.positions.chains == opened.positions.chains
    with_none = Opened(three_brokers, topic, opened.directory / "other")
    assert with_none.open(4) == ()  # as an older release left it
    assert with_none.positions.chains == opened.positions.chains


def test_what_spark_may_have_fetched_counts_as_read_while_the_query_runs(
    three_brokers: LocalCluster, topic: str, opened: Opened
) -> None:
    assert opened.read(3) == 1

    def lose() -> None:
        three_brokers.append(topic, RECORD, RECORD)
        assert opened.read(4) == 1  # the one after it was in the log, too

    three_brokers.cut(topic, 0, lost=lose, kept=lambda: three_brokers.append(topic, *[RECORD] * 9))
    for look in (opened.positions.check, opened.positions.before_read):
        with pytest.raises(TruncatedLogError, match=f"partition 0 of {topic} was cut at offset 3"):
            look()
    (cut,) = opened.open(4)
    assert (cut.start, cut.end, cut.new_epoch) == (3, 4, three_brokers.leader_epoch(topic, 0))
    assert str(cut) == f"partition 0 of {topic}, offset 3"
    (again,) = opened.open(4)  # it is found again until the tables are repaired
    assert replace(again, found_at=cut.found_at) == cut
    opened.positions.started([cut])
    assert opened.open(0) == ()
    assert opened.cuts == [cut, again]


def test_what_was_read_before_a_partition_is_read_again_is_compared_with_a_log_that_is_cut_meanwhile(
    three_brokers: LocalCluster, topic: str, opened: Opened
) -> None:
    assert opened.read(3) == 1
    opened.positions.started(())
    assert opened.positions.after_read({0: 1})  # the first batch of the reading from the start

    def lose() -> None:
        three_brokers.append(topic, RECORD, RECORD)
        assert opened.read(5) == 1
        assert opened.positions.after_read({0: 2})

    three_brokers.cut(topic, 0, lost=lose, kept=lambda: three_brokers.append(topic, *[RECORD] * 9))
    (cut,) = opened.open(2)
    assert (cut.start, cut.end) == (3, 5)


def test_a_batch_that_was_begun_and_ends_beyond_the_log_is_no_loss(opened: Opened) -> None:
    assert opened.read(2) == 1
    assert opened.open(2, begun=3) == ()
    assert opened.check.is_whole
    assert opened.open(2, begun=9) == ()
    assert opened.check.ends_early
    assert not opened.check.is_whole


def test_what_was_read_while_the_topic_was_created_again_is_refused(
    three_brokers: LocalCluster, topic: str, opened: Opened
) -> None:
    assert opened.read(0) == 1

    def read() -> None:
        three_brokers.delete_topic(topic)
        three_brokers.create_topic(topic)

    with pytest.raises(OtherTopicError, match="deleted and created again"):
        read_whole(opened.positions, read, {0: 0})

"""Records of groups in a test's own topic, which the job reads instead of the brokers' offsets topic."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from threading import Event

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.offsets_topic import OffsetsTopic, OffsetsTopicClient
from tests.support.encode import encode
from tests.support.encoded import Pair, metadata_record
from tests.support.waiting import MINUTES, wait_until

UNDECODABLE: Pair = (b"\x00\x14\x00\x01g", b"\x00\x63")
Append = Callable[..., int]


def describe_offsets_topic(
    spark: SparkSession, properties: Mapping[str, str], topic: str, *, to_read: bool = True
) -> OffsetsTopic:
    """Describe the topic as `OffsetsTopicClient` does, over a connection for this call only."""
    with closing(SharedConnection(properties, Admin)) as connection:
        return OffsetsTopicClient(connection, topic, spark, Event()).describe(to_read=to_read)


def epoch_records(group_id: str, epoch: int) -> tuple[Pair, Pair]:
    """Return the records that bring a group to an epoch, with an assignment for it."""
    group = {"group_id": group_id}
    return metadata_record(group, epoch), encode(20, group, {"assignment_epoch": epoch})


@contextmanager
def appending(server: str) -> Iterator[Append]:
    """Give a function that appends records to a partition of a topic, one after the other.

    It returns the offset of the last one.
    """
    with KafkaProducer(bootstrap_servers=server, metadata_max_age_ms=500) as producer:

        def append(topic: str, *records: Pair, partition: int = 0) -> int:
            assert wait_until(lambda: partition in (producer.partitions_for(topic) or ()))  # it may be new
            for key, value in records:
                sent = producer.send(topic, key=key, value=value, partition=partition).get(MINUTES)
            return int(sent.offset)

        yield append

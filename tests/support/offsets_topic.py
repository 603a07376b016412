"""Records of groups in a test's own topic, which the job reads instead of the brokers' offsets topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka import KafkaProducer

from offsets_decoder import encode
from tests.support.encoded import Pair, metadata_record
from tests.support.waiting import MINUTES, wait_until

UNDECODABLE: Pair = (b"\x00\x18\x00\x01g", b"?")
Append = Callable[..., int]


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

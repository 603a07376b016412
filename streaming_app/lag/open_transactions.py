"""Open transactions on the logs that groups read, as the brokers describe them, and where they hold groups for long."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.work import GroupWork

_MOST_ASKED = 1_000  # partitions: the answer has each producer of the last day


class OpenTransaction(NamedTuple):
    """An open transaction, as DescribeTransactions returns it."""

    transactional_id: str
    began: float
    """When it began, in seconds since 1970, by the clock of its coordinator."""
    timeout: float
    """`transaction.timeout.ms` of its producer, in seconds: the coordinator aborts it after that."""
    producer_id: int


class FirstProducer(NamedTuple):
    """The producer of the open transaction with the first offset in a partition, as DescribeProducers returns it."""

    starts_at: int
    """The first offset of its transaction."""
    producer_id: int
    of: OpenTransaction | None = None
    """Its transaction; None: it may not be described, or its coordinator does not know it any more (KIP-664)."""


@dataclass(frozen=True)
class Transactions:
    """What is known of transactions in a cluster."""

    open: Mapping[TopicPartition, OpenTransaction] = field(default_factory=dict)
    """The oldest open transaction that writes to a partition, of those that may be described."""
    longest: float | None = None
    """`transaction.max.timeout.ms` of the brokers, in seconds; None: not known."""
    first: Mapping[TopicPartition, FirstProducer] = field(default_factory=dict)
    """The producers for which a group has waited for long, of topics that may be read."""


NO_TRANSACTIONS = Transactions()


def held_for_long(work: Iterable[GroupWork]) -> list[TopicPartition]:
    """Return the partitions that have held a group for longer than its patience, at most 1,000, the oldest first."""
    since = {key: at for one in work for key, at in one.held.items() if one.known_at - at >= one.patience}
    return nsmallest(_MOST_ASKED, since, key=lambda key: (since[key], key))

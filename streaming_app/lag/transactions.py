"""Open transactions on the logs that groups read, as the coordinators of the transactions describe them. Only data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streaming_app.lag.ends import TopicPartition


class OpenTransaction(NamedTuple):
    """An open transaction, as DescribeTransactions returns it."""

    transactional_id: str
    began: float
    """When it began, in seconds since 1970, by the clock of its coordinator."""
    timeout: float
    """`transaction.timeout.ms` of its producer, in seconds: the coordinator aborts it after that."""
    producer_id: int


@dataclass(frozen=True)
class Transactions:
    """What is known of transactions in a cluster."""

    open: Mapping[TopicPartition, OpenTransaction] = field(default_factory=dict)
    """The oldest open transaction that writes to a partition, of those that may be described."""
    longest: float | None = None
    """`transaction.max.timeout.ms` of the brokers, in seconds; None: not known."""


NO_TRANSACTIONS = Transactions()

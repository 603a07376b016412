"""Partition counts of the cluster's topics, from which the reason why a group is NotReady is derived."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from kafka.errors import KafkaError

from streaming_app.kafka.connection import Admin, SharedConnection
from streaming_app.kafka.properties import SecurityError
from streaming_app.kafka.topic_reader import UNKNOWN_TOPIC, describe_topics
from streaming_app.report import Report

_KEPT_SECONDS = 10.0
_PAUSE_SECONDS = 10.0  # after no broker has answered: the batch that asks does not wait for a connection each time


class PartitionCounts:
    """Returns partition counts by topic, or None if they are not known; for one thread."""

    def __init__(self, connection: SharedConnection[Admin], report: Report) -> None:
        """Prepare; `report` gets a line if kafka-python does not support the client properties."""
        self._connection, self._report = connection, report
        self._counts: dict[str, int | None] = {}
        self._kept_until = self._ask_at = 0.0

    def __call__(self, names: Sequence[str]) -> Mapping[str, int] | None:
        """Return the partition counts of the topics that exist among these.

        None if no broker answers, which the stream reports, or the principal may not describe one of the topics.
        """
        now = time.monotonic()
        if now >= self._kept_until:
            self._counts, self._kept_until = {}, now + _KEPT_SECONDS
        if missing := [name for name in names if name not in self._counts]:
            if now < self._ask_at:
                return None
            try:
                with self._connection.use() as admin:
                    topics = describe_topics(admin, missing)
            except SecurityError as error:
                self._ask_at = math.inf
                because = f"because topics cannot be described: {error}"
                self._report(f"NotReady reasons are derived from the log alone, {because}")
                return None
            except (KafkaError, OSError):
                self._ask_at = now + _PAUSE_SECONDS
                return None
            if any(one.error not in {None, UNKNOWN_TOPIC} for one in topics.values()):
                return None  # not authorized to describe it: the topic may still exist
            self._counts |= {name: len(topics[name].leaders) or None for name in missing}
        return {name: count for name in names if (count := self._counts[name])}

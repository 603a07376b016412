"""Partition counts of the cluster's topics, from which the reason why a group is NotReady is derived."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kafka.errors import KafkaError

from streaming_app.kafka import diagnose
from streaming_app.kafka.connection import IMPATIENT_CONNECT_SECONDS, KeptConnection, connect
from streaming_app.kafka.properties import SecurityError
from streaming_app.report import ReportOnce

_CACHE_SECONDS = 10.0
_RECONNECT_SECONDS = 10.0  # between attempts to connect
_UNKNOWN_TOPIC_OR_PARTITION = 3

PartitionCounts = Mapping[str, int]


class TopicMetadata:
    """A cached client for topic metadata. Returns partition counts by topic, or None if they are not available."""

    def __init__(self, properties: Mapping[str, str], warn: Callable[[str], None]) -> None:
        """Prepare; the first call connects. `properties` are Kafka client properties, `warn` gets warnings."""
        self._properties, self._warn = properties, ReportOnce(warn)
        self._connection = KeptConnection(partial(connect, properties, IMPATIENT_CONNECT_SECONDS))
        self._reconnect_at = 0.0
        self._cache: dict[str, int | None] = {}
        self._cached_until = 0.0

    def __call__(self, names: Sequence[str]) -> PartitionCounts | None:
        """Return the partition counts of the topics that exist among these.

        None if the cluster does not answer or the principal may not describe the topics.
        """
        if time.monotonic() < self._reconnect_at:
            return None
        try:
            return self._partition_counts(names)
        except SecurityError as error:
            self._reconnect_at, cause = math.inf, str(error)
        except (KafkaError, OSError) as error:
            if self._connection.is_open:  # it has answered before: the next batch connects again
                self.close()
                return None
            servers = self._properties["bootstrap.servers"]
            cause = diagnose.find_cause(servers, self._properties) or type(error).__name__
            self._reconnect_at = time.monotonic() + _RECONNECT_SECONDS
        self._warn(f"NotReady reasons are derived from the log alone, because topics cannot be described: {cause}")
        return None

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection.close()

    def _partition_counts(self, names: Sequence[str]) -> PartitionCounts | None:
        if time.monotonic() > self._cached_until:
            self._cache, self._cached_until = {}, time.monotonic() + _CACHE_SECONDS
        if missing := [name for name in names if name not in self._cache]:
            topics = {topic["name"]: topic for topic in self._connection.get().describe_topics(missing)}
            if any(topic["error_code"] not in (0, _UNKNOWN_TOPIC_OR_PARTITION) for topic in topics.values()):
                return None  # not authorized to describe it: the topic may still exist
            for name in missing:
                self._cache[name] = len(topics[name]["partitions"]) or None if name in topics else None
        return {name: count for name in names if (count := self._cache[name])}

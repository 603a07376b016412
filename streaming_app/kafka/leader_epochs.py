"""Leader epochs: the leader of each partition of a topic and its epoch, and the end offsets of epochs.

The leader answers OffsetForLeaderEpoch (KIP-101, KIP-320) from the epochs in its log. Each request carries the epoch in
which the caller believes the broker to lead, and a broker that knows a newer epoch rejects the request. So an answer
also proves that there was no election since the caller last asked.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from kafka.errors import KafkaError
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from streaming_app.errors import NotAuthorizedError, UnreachableError
from streaming_app.kafka.connection import IMPATIENT_CONNECT_SECONDS, KeptConnection, connect
from streaming_app.kafka.error_lines import missing_acl_message
from streaming_app.kafka.lag_offsets import format_topic_id
from streaming_app.kafka.offsets_topic import check_topic_id
from streaming_app.kafka.protocol import TOPIC_AUTHORIZATION_FAILED, build, error_name

_PATIENCE_SECONDS = 30.0  # for elections: a dead broker is fenced after its session timeout, 9 s by default
_PAUSE_SECONDS = 0.2
_ANSWER_MS = 5_000
_MIN_VERSION = 2  # of OffsetForLeaderEpoch: the first version with the epoch that the caller knows


class Leader(NamedTuple):
    """The leader of a partition and its epoch."""

    node_id: int
    epoch: int


class EpochEnd(NamedTuple):
    """The newest epoch in a log that is not above the requested one, and the offset at which the next epoch starts.

    Both are -1 if the log has none. For the newest epoch the offset is the end of the log.
    """

    epoch: int
    end: int


class LeaderEpochs:
    """Asks the leaders of one topic, over one connection, for one thread at a time."""

    def __init__(self, properties: Mapping[str, str], topic: str, topic_id: str, stop: threading.Event) -> None:
        """Prepare; the first call connects. `properties` are Kafka's. Once `stop` is set, no call waits."""
        self._topic, self._topic_id, self._stop = topic, topic_id, stop
        self._connection = KeptConnection(partial(connect, properties, IMPATIENT_CONNECT_SECONDS))
        self._leaders: dict[int, Leader] = {}

    def epochs(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the epochs of the leaders, as of the last answer. Raises as `ends` if a leader is not known."""
        wanted = list(partitions)
        if not all(partition in self._leaders for partition in wanted):
            self.ends(dict.fromkeys(wanted, 0))
        return {partition: self._leaders[partition].epoch for partition in wanted}

    def ends(self, epochs: Mapping[int, int]) -> dict[int, EpochEnd]:
        """Return the end offsets of these epochs, by partition. Waits for elections for up to half a minute.

        Raises UnreachableError if a partition then has no leader that answers, NotAuthorizedError without the ACL,
        OtherTopicError if the topic was created again, SecurityError for properties that kafka-python does not support.
        """
        found: dict[int, EpochEnd] = {}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while missing := {partition: epoch for partition, epoch in epochs.items() if partition not in found}:
            failures = self._ask(missing, found)
            if failures and (time.monotonic() > deadline or self._stop.wait(_PAUSE_SECONDS)):
                partition, reason = min(failures.items())
                raise UnreachableError(f"No leader of partition {partition} of {self._topic} answers: {reason}.")
        return found

    def forget(self) -> None:
        """Ask for the leaders and the topic's id again before the next request, which names the topic by its name."""
        self._leaders.clear()

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection.close()

    def _ask(self, epochs: Mapping[int, int], found: dict[int, EpochEnd]) -> dict[int, str]:
        """Add the answers to `found`; return by partition why the other answers are missing."""
        try:
            if not all(partition in self._leaders for partition in epochs):
                self._find_leaders()
            failures = {partition: "LEADER_NOT_AVAILABLE" for partition in epochs if partition not in self._leaders}
            by_leader: defaultdict[int, dict[int, int]] = defaultdict(dict)
            for partition in epochs.keys() - failures.keys():
                by_leader[self._leaders[partition].node_id][partition] = epochs[partition]
            requests = [(node_id, self._request(asked)) for node_id, asked in by_leader.items()]
            answers = self._connection.get().send_all(requests, _ANSWER_MS)
        except (KafkaError, OSError) as error:
            self.close()
            return dict.fromkeys(epochs, type(error).__name__)
        for asked, answer in zip(by_leader.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                failures |= dict.fromkeys(asked, type(answer).__name__)
            else:
                failures |= self._take(answer, found)
        for partition in failures:
            self._leaders.pop(partition, None)
        return failures

    def _take(self, answer: Any, found: dict[int, EpochEnd]) -> dict[int, str]:  # noqa: ANN401 - kafka-python is untyped
        failures = {}
        for one in answer.topics[0].partitions:
            if one.error_code == TOPIC_AUTHORIZATION_FAILED:
                raise NotAuthorizedError(missing_acl_message("DESCRIBE", "Topic", self._topic))
            if one.error_code:
                failures[one.partition] = error_name(one.error_code)
            else:
                found[one.partition] = EpochEnd(one.leader_epoch, one.end_offset)
        return failures

    def _find_leaders(self) -> None:
        wanted = MetadataRequest.MetadataRequestTopic(name=self._topic)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        (topic,) = self._connection.get().send_to_any(request).topics
        if found_id := format_topic_id(topic.topic_id):
            check_topic_id(self._topic, self._topic_id, found_id)
        self._leaders = {
            one.partition_index: Leader(one.leader_id, one.leader_epoch)
            for one in topic.partitions
            if not one.error_code and one.leader_id >= 0
        }

    def _request(self, epochs: Mapping[int, int]) -> Any:  # noqa: ANN401 - kafka-python is untyped
        partitions = [
            {"partition": one, "current_leader_epoch": self._leaders[one].epoch, "leader_epoch": epoch}
            for one, epoch in epochs.items()
        ]
        fields = {"replica_id": -1, "topics": [{"topic": self._topic, "partitions": partitions}]}
        return build(OffsetForLeaderEpochRequest, fields, min_version=_MIN_VERSION)

"""Leader epochs of one topic for a stream: the epochs of its leaders, and the end offsets of epochs in their logs.

The leader answers OffsetForLeaderEpoch (KIP-101, KIP-320) from the epochs in its log. `TopicReader.epoch_ends` says
what an answer proves. A stream cannot go on without it, so here a call waits for elections.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from kafka.errors import KafkaError

from streaming_app.errors import NotAuthorizedError, UnreachableError
from streaming_app.kafka.connection import ANSWER_MS, Admin, SharedConnection
from streaming_app.kafka.error_lines import missing_acl_message
from streaming_app.kafka.offsets_topic import check_topic_id
from streaming_app.kafka.topic_reader import EARLIEST, EpochEnd, TopicReader, is_denied, read_offsets

_PATIENCE_SECONDS = 30.0  # for elections: a dead broker is fenced after its session timeout, 9 s by default
_PAUSE_SECONDS = 0.2
_ANSWER_MS = 5_000  # doubled with each attempt: a broker that has just started may be slow


class LeaderEpochs:
    """Asks the leaders of one topic; for one thread at a time."""

    def __init__(self, connection: SharedConnection[Admin], topic: str, topic_id: str, stop: threading.Event) -> None:
        """Prepare; the first call asks. Once `stop` is set, no call waits."""
        self._connection, self._topic, self._topic_id, self._stop = connection, topic, topic_id, stop
        self._reader, self._is_described = TopicReader(), False

    def epochs(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the epochs of the leaders, as of the last answer. Raises as `ends` if a leader is not known."""
        wanted = list(partitions)
        if not self._is_described:
            self.ends(dict.fromkeys(wanted, 0))
        return {partition: self._reader.topics[self._topic].epochs[partition] for partition in wanted}

    def ends(self, epochs: Mapping[int, int]) -> dict[int, EpochEnd]:
        """Return the end offsets of these epochs, by partition. Waits for elections for up to half a minute.

        Raises UnreachableError if a partition then has no leader that answers, NotAuthorizedError without the ACL,
        OtherTopicError if the topic was created again, SecurityError for properties that kafka-python does not support.
        """
        found: dict[int, EpochEnd] = {}
        deadline, timeout_ms = time.monotonic() + _PATIENCE_SECONDS, _ANSWER_MS
        while missing := {partition: epoch for partition, epoch in epochs.items() if partition not in found}:
            failures = self._ask(missing, found, timeout_ms)
            if failures and (time.monotonic() > deadline or self._stop.wait(_PAUSE_SECONDS)):
                partition, reason = min(failures.items())
                raise UnreachableError(f"No leader of partition {partition} of {self._topic} answers: {reason}.")
            timeout_ms = min(2 * timeout_ms, ANSWER_MS)
        return found

    def start(self, partition: int) -> int:
        """Return the start offset of the log of a partition. Raises KafkaError, and UnreachableError without one."""
        with self._connection.use() as admin:
            described, (starts,) = read_offsets(admin, self._topic, EARLIEST)
        if partition not in starts:
            raise UnreachableError(f"Cannot read partition {partition} of {self._topic}: {described.error}.")
        return starts[partition]

    def forget(self) -> None:
        """Describe the topic again before the next request, which names the topic by its name."""
        self._is_described = False

    def _ask(self, epochs: Mapping[int, int], found: dict[int, EpochEnd], timeout_ms: int) -> dict[int, str]:
        """Add the answers to `found`; return by partition why the other answers are missing."""
        try:
            with self._connection.use() as admin:
                if not self._is_described:
                    self._reader.describe(admin, [self._topic])
                    if topic_id := self._reader.topics[self._topic].topic_id:
                        check_topic_id(self._topic, self._topic_id, topic_id)
                answers = self._reader.epoch_ends(admin, self._topic, epochs, timeout_ms)
        except (KafkaError, OSError) as error:
            self.forget()
            return dict.fromkeys(epochs, type(error).__name__)
        failures = {partition: one for (_, partition), one in answers.items() if isinstance(one, str)}
        if any(map(is_denied, failures.values())):
            raise NotAuthorizedError(missing_acl_message("DESCRIBE", "Topic", self._topic))
        found |= {partition: one for (_, partition), one in answers.items() if isinstance(one, EpochEnd)}
        self._is_described = not failures
        return failures

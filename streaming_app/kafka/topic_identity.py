"""Whether a topic is still the one that a stream began to read: asked with each batch, by one client of Kafka's own.

A topic that is deleted and created again under a running stream may soon be longer than what was read of the old one.
Spark then goes on in the new one, at the old offset, without an error. So a batch asks after its records were read, and
before anything of them is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streaming_app.errors import OtherTopicError
from streaming_app.kafka.client_errors import to_job_error
from streaming_app.kafka.offsets_topic import OffsetsTopic, create_admin_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUT_MS = 15_000


def check_topic_id(name: str, expected: str, found: str) -> None:
    """Raise OtherTopicError if the id of a topic is not the one that it had."""
    if found != expected:
        raise OtherTopicError(
            f"Topic {name} was deleted and created again while the job ran: start it with --reset to drop the rows of "
            "the groups and read from the beginning; the history stays"
        )


class TopicIdentity:
    """The topic of one stream, and whether it is still the same one; over one connection, for one thread at a time."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str]) -> None:
        """Prepare; the first check connects."""
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
        self._properties = properties
        self._topic: OffsetsTopic | None = None
        self._admin: Any = None

    def remember(self, topic: OffsetsTopic) -> None:
        """Take this topic for the one that is read from now on."""
        self._topic = topic

    def check(self) -> None:
        """Raise OtherTopicError if another topic has the name by now; where that is not known, as `to_job_error`."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded only where it is needed

        if self._topic is None:
            return
        name = self._topic.name
        try:
            if self._admin is None:
                self._admin = create_admin_client(self._jvm, self._properties, _TIMEOUT_MS)
            names, unit = self._jvm.java.util.List.of(name), self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
            found = self._admin.describeTopics(names).allTopicNames().get(_TIMEOUT_MS, unit).get(name)
        except Py4JJavaError as error:
            raise to_job_error(error.java_exception, self._properties, name) from None
        check_topic_id(name, self._topic.topic_id, found.topicId().toString())

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._admin is not None:
            with suppress(Exception):  # py4j raises several kinds if the JVM has ended
                self._admin.close(self._jvm.java.time.Duration.ofMillis(0))
            self._admin = None

"""What topics the cluster has, asked of it when a group is NotReady: so the reason can be told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from kafka.errors import KafkaError

from streaming_app.protocol import trouble
from streaming_app.protocol.admin import Admin
from streaming_app.protocol.security import SecurityError, security_settings

_KEEP_SECONDS = 10.0
_CONNECT_MS = 5_000  # the stream waits meanwhile
_PAUSE_SECONDS = 10.0  # between tries to connect
_UNKNOWN_TOPIC = 3

Counts = Mapping[str, int]


class Topics:
    """Answers with partition counts by topic, or None where it may not or cannot know: then the log alone must do."""

    def __init__(self, properties: Mapping[str, str], say: Callable[[str], None]) -> None:
        """Prepare; the first question connects. `properties` are Kafka client properties."""
        logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)  # what matters of it comes as an exception
        self._properties = properties
        self._say = say
        self._admin: Admin | None = None
        self._off = False
        self._pause_until = 0.0
        self._said = ""
        self._known: dict[str, int | None] = {}
        self._known_until = 0.0

    def __call__(self, names: Sequence[str] | None) -> Counts | None:
        """Partition counts of those of the topics that exist; of all topics for None."""
        if self._off or time.monotonic() < self._pause_until:
            return None
        try:
            return self._ask(names)
        except SecurityError as error:
            self._off = True
            self._tell(str(error))
        except (KafkaError, OSError) as error:
            if self._admin:  # it did answer once: the next batch connects anew
                self.close()
                return None
            self._pause_until = time.monotonic() + _PAUSE_SECONDS
            self._tell(trouble.reason(self._properties["bootstrap.servers"], self._properties) or type(error).__name__)
        return None

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._admin:
            self._admin.close()
            self._admin = None

    def _tell(self, why: str) -> None:
        if why != self._said:
            self._said = why
            self._say(f"Reasons of NotReady come from the log alone, as topics cannot be asked for: {why}")

    def _connected(self) -> Admin:
        if self._admin is None:
            servers = self._properties["bootstrap.servers"].split(",")
            settings = security_settings(self._properties)
            self._admin = Admin(bootstrap_servers=servers, bootstrap_timeout_ms=_CONNECT_MS, **settings)
        return self._admin

    def _ask(self, names: Sequence[str] | None) -> Counts | None:
        if time.monotonic() > self._known_until:
            self._known, self._known_until = {}, time.monotonic() + _KEEP_SECONDS
        unknown = None if names is None else [name for name in names if name not in self._known]
        if unknown is None or unknown:
            told = {topic["name"]: topic for topic in self._connected().describe_topics(unknown)}
            if any(topic["error_code"] not in (0, _UNKNOWN_TOPIC) for topic in told.values()):
                return None  # not to be seen, which is not the same as missing
            if names is None:
                return {name: len(topic["partitions"]) for name, topic in told.items()}
            for name in unknown or ():
                self._known[name] = len(told[name]["partitions"]) or None if name in told else None
        return {name: count for name in names or () if (count := self._known[name])}

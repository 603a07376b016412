"""What topics the cluster has, asked of it when a group is NotReady: so the reason can be told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kafka.errors import KafkaError

from streaming_app.protocol.admin import Admin
from streaming_app.protocol.security import SecurityError, security_settings

_KEEP_SECONDS = 10.0
_UNKNOWN_TOPIC = 3

Counts = Mapping[str, int]


class Topics:
    """Answers with partition counts by topic, or None where it may not or cannot know: then the log alone must do."""

    def __init__(self, properties: Mapping[str, str], say: Callable[[str], None]) -> None:
        """Prepare; the first question connects. `properties` are Kafka client properties."""
        self._properties = properties
        self._say = say
        self._admin: Admin | None = None
        self._off = False
        self._known: dict[str, int | None] = {}
        self._known_until = 0.0

    def __call__(self, names: Sequence[str] | None) -> Counts | None:
        """Partition counts of those of the topics that exist; of all topics for None."""
        if self._off:
            return None
        try:
            return self._ask(names)
        except SecurityError as error:
            self._off = True
            self._say(f"Reasons of NotReady come from the log alone, as topics cannot be asked for: {error}")
        except KafkaError:
            self.close()
        return None

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._admin:
            self._admin.close()
            self._admin = None

    def _connected(self) -> Admin:
        if self._admin is None:
            servers = self._properties["bootstrap.servers"].split(",")
            self._admin = Admin(bootstrap_servers=servers, **security_settings(self._properties))
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

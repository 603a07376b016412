"""Which topics were deleted, created again, or got partitions, from pass to pass. Pure."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from streaming_app.groups.events import TOPIC_DELETED, TOPIC_GROWN, TOPIC_RECREATED


class KnownTopic(NamedTuple):
    """A topic as it was last described."""

    topic_id: str | None
    partitions: int
    """0: it does not exist any more, or that is not known."""


class TopicChanges:
    """The topics that groups read, as they were last described."""

    def __init__(self) -> None:
        self._known: dict[str, KnownTopic] = {}

    def restore(self, topic: str, topic_id: str | None, partitions: int) -> None:
        """Begin with what an earlier run knew."""
        known = self._known.get(topic, KnownTopic(topic_id, 0))
        self._known[topic] = KnownTopic(topic_id or known.topic_id, max(partitions, known.partitions))

    def update(
        self, described: Mapping[str, KnownTopic | None], needed: Collection[str]
    ) -> Iterator[tuple[str, str, str, str | None]]:
        """Yield topic, kind of event, old and new value for each change. None: the topic does not exist.

        Topics that are not `described` stay as they were; those that are not `needed` any more are forgotten.
        """
        known = self._known
        self._known = {topic: one for topic, one in known.items() if topic in needed}
        for topic, now in described.items():
            before = known.get(topic)
            if now is None:
                if before and before.partitions:
                    yield topic, TOPIC_DELETED, str(before.topic_id), None
                    self._known[topic] = before._replace(partitions=0)
                continue
            if before and None not in {before.topic_id, now.topic_id} and before.topic_id != now.topic_id:
                yield topic, TOPIC_RECREATED, str(before.topic_id), now.topic_id
            elif before and 0 < before.partitions < now.partitions:
                yield topic, TOPIC_GROWN, str(before.partitions), str(now.partitions)
            self._known[topic] = now

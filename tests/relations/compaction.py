"""Relation C: the log compacted at a moment, as the broker's cleaner leaves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from streaming_app.alerts.catalog import HEALTH_RULES
from tests.histories.bed import STEP
from tests.histories.clients import Appended
from tests.histories.history import MINUTE, History
from tests.histories.judged import OUTCOMES
from tests.histories.world import Transform, World
from tests.relations.engine import random_of, told

OF_THE_PAST: Mapping[str, str] = {
    "StreamsGroupUnsolicitedDescription": "only two records one after the other show a push that nobody asked for",
    "StreamsGroupDescriptionMissing": "it expects a description of a group that had one before its newest records",
}
"""The rules whose evidence are records before the newest ones, each with the reason: their alerts may be missing."""
AT_LEAST: Mapping[str, str] = {
    "StreamsGroupDescriptionFailed": "the newest record shows the status, and only an older one when it began",
}
"""The rules whose alerts may have begun earlier than a compacted log shows."""


@dataclass(frozen=True)
class Compaction:
    """What the cleaner has done when the job begins to read."""

    name: str
    share: float = 1.0
    """The part of the time until then that is compacted: a head, or all."""
    keeps_tombstones: bool = False
    """Tombstones stay for `delete.retention.ms`, a day, and then go."""

    def at(self, start: float, world: World) -> World:
        """Return the world whose log is compacted up to a part of the time until `start`."""
        until = start * self.share
        head = [one for one in world.log if one.at <= until]
        newest = {_key(one): one for one in head}
        kept = [
            one for one in head if newest[_key(one)] is one and (self.keeps_tombstones or one.record.value is not None)
        ]
        return replace(world, log=[*kept, *world.log[len(head) :]])


def compacted(begin: float, end: float) -> Transform:
    """Return the transformation that compacts what is written in a time: the newest record of each key is left.

    Tombstones stay, as they do for `delete.retention.ms`, a day.
    """

    def of(world: World) -> World:
        newest = {_key(one): one for one in world.log if one.at <= end}
        kept = [one for one in world.log if not begin < one.at <= end or newest[_key(one)] is one]
        return replace(world, log=kept)

    return of


COMPACTIONS: Sequence[Compaction] = (
    Compaction("with tombstones", keeps_tombstones=True),
    Compaction("without tombstones"),
    Compaction("only a head", share=0.6),
)


def _key(one: Appended) -> tuple[str, int, str]:
    return one.group_id, one.record.record_type, str(sorted(one.record.key.items()))


def moments(history: History) -> list[float]:
    """Return when jobs begin to read: before anything goes wrong, in its middle, and shortly before it is over."""
    random, (first, last) = random_of("C", history.name), (history.watched_from, history.seconds)
    alerts = [one for one in told(OUTCOMES.of(history)) if one.rule in HEALTH_RULES]
    ends = [one.ended_at or last for one in alerts]
    found = [min(history.begins, last) - 5 * MINUTE]
    found += [random.uniform(alerts[0].since, ends[0]), ends[-1] - 15 * MINUTE] if alerts else []
    found += [] if alerts else [random.uniform(first, last)]
    return sorted({max(first, one - one % STEP) for one in found if one <= last - 10 * MINUTE})

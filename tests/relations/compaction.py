"""Relation C: the log compacted at a moment, as the broker's cleaner leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.histories.clients import Appended
from tests.histories.world import World


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
            one
            for one in head
            if newest[_key(one)] is one and (self.keeps_tombstones or one.record.value is not None)
        ]
        return replace(world, log=[*kept, *world.log[len(head) :]])


COMPACTIONS: Sequence[Compaction] = (
    Compaction("with tombstones", keeps_tombstones=True),
    Compaction("without tombstones"),
    Compaction("only a head", share=0.6),
)


def _key(one: Appended) -> tuple[str, int, str]:
    return one.group_id, one.record.record_type, str(sorted(one.record.key.items()))

"""Why a group got a new epoch and a new assignment, as far as its records prove it. Pure.

Theory of operation
-------------------
The broker raises the group epoch (record 17) in the operation that makes a new assignment necessary, and that operation
also holds the reason: the records of members that join and leave, another metadata hash, other assignment configs. The
assignment (record 20) follows in the same operation or in a later one, after the initial rebalance delay or the
assignment interval, and then for all epochs since the last one. So the causes are collected in the group's row until
there is an assignment (`StreamsGroupHeartbeat` and `replaceStreamsMember` in `GroupMetadataManager`, Kafka 4.4.0).

What the log does not show is `unknown`: changes of rack, client tags or process of a member that stays, and whatever
later releases may start a rebalance for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

MEMBER_JOINED, MEMBER_LEFT, MEMBER_REPLACED = "member_joined", "member_left", "member_replaced"
TOPICS_CHANGED, CONFIG_CHANGED, TOPOLOGY_CHANGED = "topics_changed", "config_changed", "topology_changed"
UNKNOWN = "unknown"
CAUSES = (MEMBER_JOINED, MEMBER_LEFT, MEMBER_REPLACED, TOPICS_CHANGED, CONFIG_CHANGED, TOPOLOGY_CHANGED, UNKNOWN)
"""In the order in which they are written, joined by commas."""
OF_MEMBERS = frozenset({MEMBER_JOINED, MEMBER_LEFT, MEMBER_REPLACED})

ValueChanges = Mapping[tuple[str, str | None], tuple[str | None, str | None]]
"""(what, member id) to the values before and after an operation, for what it changed."""

# value of the group that changed -> cause
_OF_VALUES = {
    "metadata_hash": TOPICS_CHANGED,
    "assignment_configs": CONFIG_CHANGED,
    "topology_epoch": TOPOLOGY_CHANGED,
}


def causes_of(changes: ValueChanges) -> set[str]:
    """Return the causes that the changes of one operation prove; empty if they prove none."""
    is_created = changes.get(("group", None), ("", ""))[0] is None
    if is_created:  # it has all values for the first time, and members that left were those of an earlier group
        return {MEMBER_JOINED} if _joined(changes) else set()
    changed = {cause for value, cause in _OF_VALUES.items() if None not in changes.get((value, None), (None, None))}
    return changed.union(_member_causes(changes))


def _joined(changes: ValueChanges) -> set[str | None]:
    """Return the members that joined: their record 19 was read, which always has a host."""
    return {
        member_id
        for (what, member_id), (old, new) in changes.items()
        if what == "member" and old is None and new is not None
        if changes.get(("client_host", member_id), (None, None))[1] is not None
    }


def _member_causes(changes: ValueChanges) -> Iterator[str]:
    joined = _joined(changes)
    left = {member_id for (what, member_id), (_, new) in changes.items() if what == "member" and new is None}
    instances_left = {changes.get(("instance_id", member_id), (None, None))[0] for member_id in left} - {None}
    replaced = {
        member_id for member_id in joined if changes.get(("instance_id", member_id), (None, None))[1] in instances_left
    }
    if joined - replaced:
        yield MEMBER_JOINED
    if len(left) > len(replaced):
        yield MEMBER_LEFT
    if replaced:
        yield MEMBER_REPLACED


def join_causes(causes: Iterable[str]) -> str | None:
    """Return the causes as they are written, None for none."""
    known = set(causes)
    return ",".join(cause for cause in CAUSES if cause in known) or None


def split_causes(text: str | None) -> frozenset[str]:
    """Return the causes that `join_causes` joined."""
    return frozenset(text.split(",")) if text else frozenset()

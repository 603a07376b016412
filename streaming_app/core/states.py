"""What a group's records say about its state and its topology description: two decision tables, first match wins.

Theory of operation
-------------------
The broker never writes a group's state; it derives it from the records
(`StreamsGroup.maybeUpdateGroupState`, Apache Kafka 4.4.0), and so do we, by the same rules in the same order. Two
rows are ours: a deleted group is Dead, and a group of which the log does not tell whether its topics are in order is
Unknown (a 4.1 broker keeps that in memory only, and a record may be still to come).

The description's status compares three numbers (KIP-1331, as 4.4.0 ships it): the topology's epoch, the epoch whose
description the plugin holds, and the epoch whose description it rejected for good.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

NONE = -1  # no epoch: what the tagged fields of record 17 default to
UNCERTAIN = -2  # a plugin call was begun and its end is not in the log yet

STABLE_MEMBER = "STABLE"
MEMBER_STATES = {1: STABLE_MEMBER, 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}  # any other byte: UNKNOWN


class GroupFacts(Protocol):
    """What the state rules look at."""

    deleted: bool
    readiness_recorded: bool
    group_epoch: int | None
    topology_epoch: int | None
    validated_topology_epoch: int

    @property
    def assignment_epoch_or_first(self) -> int:
        """The assignment epoch, or the one a group starts with."""

    @property
    def has_members(self) -> bool:
        """Any member, one that is away included."""

    @property
    def all_members_stable(self) -> bool:
        """Every member is STABLE at the assignment epoch."""


STATE_RULES: tuple[tuple[str, Callable[[GroupFacts], bool]], ...] = (
    ("Dead", lambda g: g.deleted),
    ("Empty", lambda g: not g.has_members),
    ("Unknown", lambda g: g.group_epoch is None),
    ("NotReady", lambda g: g.topology_epoch is None),
    ("Unknown", lambda g: not g.readiness_recorded),
    ("NotReady", lambda g: g.topology_epoch != g.validated_topology_epoch),
    ("Assigning", lambda g: (g.group_epoch or 0) > g.assignment_epoch_or_first),
    ("Reconciling", lambda g: not g.all_members_stable),
    ("Stable", lambda _: True),
)
STATES = tuple(dict.fromkeys(state for state, _ in STATE_RULES))

# (topology epoch, stored epoch, failed epoch) -> status
DESCRIPTION_RULES: tuple[tuple[str, Callable[[int | None, int, int], bool]], ...] = (
    ("NO_TOPOLOGY", lambda current, _stored, _failed: current is None),
    ("CURRENT", lambda current, stored, _failed: stored == current),
    ("FAILED", lambda current, _stored, failed: failed == current),
    ("UNCERTAIN", lambda _current, stored, _failed: stored == UNCERTAIN),
    ("NEVER_STORED", lambda _current, stored, _failed: stored == NONE),
    ("STALE", lambda _current, _stored, _failed: True),
)
WOULD_BE_ASKED_FOR = frozenset({"UNCERTAIN", "NEVER_STORED", "STALE"})


def state_of(group: GroupFacts) -> str:
    """The group's state in the spelling of StreamsGroupDescribe (`Stable`, `NotReady`, ...), or Dead or Unknown."""
    return next(state for state, matches in STATE_RULES if matches(group))


def description_status(topology_epoch: int | None, stored: int, failed: int) -> str:
    """How the stored topology description relates to the topology."""
    return next(status for status, matches in DESCRIPTION_RULES if matches(topology_epoch, stored, failed))


def is_unsolicited(topology_epoch: int | None, before: tuple[int, int], stored: int, *, has_members: bool) -> bool:
    """Whether a new record 17 shows a description push that the broker had no reason to ask for.

    `before` is the (stored, failed) pair of the record that it replaces; `stored` is of the new one. The broker asks
    only while the stored and the failed epoch both differ from the topology's. It accepts a push all the same, and
    puts stored = -2 down before the plugin is called. Without members the same step is a deletion or a clean-up.
    """
    if not has_members or topology_epoch is None:
        return False
    was_stored, had_failed = before
    pushed_again = was_stored == topology_epoch and stored == UNCERTAIN
    pushed_after_failure = had_failed == topology_epoch and was_stored == UNCERTAIN and stored == topology_epoch
    return pushed_again or pushed_after_failure

"""A group's state and the status of its topology description, as two decision tables; the first match wins.

Theory of operation
-------------------
The broker does not write a group's state. It derives the state from the records
(`StreamsGroup.maybeUpdateGroupState`, Apache Kafka 4.4.0). These tables have the same rules in the same order, and two
more states. A deleted group is Dead. KIP-1071 defines this state for a group that is being removed, but no released
broker sets it: it answers GROUP_ID_NOT_FOUND. A group is Unknown if its records do not show whether its topics are
valid: a 4.1 broker keeps this in memory only, or a record has not been read yet. So is a classic group with members.

The description's status compares three epochs (KIP-1331, as implemented in 4.4.0): that of the topology, that of the
description that the plugin has stored, and that of the description that the plugin permanently rejected.
"""

from collections.abc import Callable
from typing import Any

NONE = -1  # no epoch: the default of the tagged fields of record 17
UNCERTAIN = -2  # the broker has called its plugin, and the result is not in the log yet

STABLE_MEMBER = "STABLE"
EMPTY, NOT_READY, ASSIGNING, STABLE, DEAD = "Empty", "NotReady", "Assigning", "Stable", "Dead"
MEMBER_STATES = {1: STABLE_MEMBER, 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}  # any other byte: UNKNOWN

Rules = tuple[tuple[str, Callable[[Any], bool]], ...]
"""Pairs of a value and the condition of a `group.Group` that has it. The first condition that holds decides."""

STATE_RULES: Rules = (
    (DEAD, lambda g: g.is_deleted),
    ("Unknown", lambda g: g.group_epoch is None),
    (EMPTY, lambda g: not g.members),
    (NOT_READY, lambda g: g.topology_epoch is None and not g.is_classic),
    ("Unknown", lambda g: not g.readiness_recorded),
    (NOT_READY, lambda g: g.topology_epoch != g.validated_topology_epoch),
    (ASSIGNING, lambda g: (g.group_epoch or 0) > g.assignment_epoch_or_first),
    ("Reconciling", lambda g: not g.all_members_stable),
    (STABLE, lambda _: True),
)
STATES = tuple(dict.fromkeys(state for state, _ in STATE_RULES))

DESCRIPTION_STATUS_RULES: Rules = (
    ("NO_TOPOLOGY", lambda g: g.topology_epoch is None),
    ("CURRENT", lambda g: g.stored_description_epoch == g.topology_epoch),
    ("FAILED", lambda g: g.failed_description_epoch == g.topology_epoch),
    ("UNCERTAIN", lambda g: g.stored_description_epoch == UNCERTAIN),
    ("NEVER_STORED", lambda g: g.stored_description_epoch == NONE),
    ("STALE", lambda _: True),
)
SOLICITABLE_STATUSES = frozenset({"UNCERTAIN", "NEVER_STORED", "STALE"})


def is_unsolicited(
    topology_epoch: int | None,
    before: tuple[int, int],
    stored: int,
    *,
    was_stored_once: bool = False,
    is_same: bool = False,
) -> bool:
    """Return whether a new record 17 of a group with members shows a push that the broker had no reason to solicit.

    `before` is the pair of stored and failed epoch in the record that it replaces; `stored` is the new stored epoch.
    The broker solicits a push only while both the stored and the failed epoch differ from the topology's. It also
    accepts other pushes, and writes stored = -2 before it calls the plugin. In a group without members, the same
    change of the record means that the group or its description is deleted.

    If the plugin rejects a second push, the record is written a second time without a change (`is_same`). Every other
    operation that writes it changes the group epoch.

    The failed epoch stays in the record when a later push succeeds. So if the description was stored before
    (`was_stored_once`), the record after stored = -2 ends a push that was already counted.
    """
    if topology_epoch is None:
        return False
    was_stored, had_failed = before
    pushed_again = was_stored == topology_epoch and stored == UNCERTAIN
    pushed_after_failure = (
        had_failed == topology_epoch
        and was_stored == UNCERTAIN
        and (stored == topology_epoch or is_same)
        and not was_stored_once
    )
    return pushed_again or pushed_after_failure

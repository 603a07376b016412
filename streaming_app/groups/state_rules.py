"""A group's state and the status of its topology description, as two decision tables; the first match wins.

Theory of operation
-------------------
The broker never writes a group's state; it derives it from the records
(`StreamsGroup.maybeUpdateGroupState`, Apache Kafka 4.4.0), and so do we, with the same rules in the same order. Two
rows are our own. A deleted group is Dead: a state of the protocol, too, which KIP-1071 gives to a group that is being
removed; no released broker sets it, and one that is asked for such a group answers GROUP_ID_NOT_FOUND. A group whose
records do not show whether its topics are valid is Unknown (a 4.1 broker keeps that in memory only, and a record may
not have been read yet).

The description's status compares three epochs (KIP-1331, as implemented in 4.4.0): that of the topology, that of the
description that the plugin has stored, and that of the description that the plugin permanently rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NONE = -1  # no epoch: the default of the tagged fields of record 17
UNCERTAIN = -2  # a plugin call was started and its result is not in the log yet

STABLE_MEMBER = "STABLE"
EMPTY, NOT_READY, ASSIGNING, STABLE, DEAD = "Empty", "NotReady", "Assigning", "Stable", "Dead"
MEMBER_STATES = {1: STABLE_MEMBER, 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS"}  # any other byte: UNKNOWN


Rules = tuple[tuple[str, Callable[[Any], bool]], ...]
"""Values, and for which groups (`group.Group`) each is the right one."""

STATE_RULES: Rules = (
    (DEAD, lambda g: g.is_deleted),
    ("Unknown", lambda g: g.group_epoch is None),
    (EMPTY, lambda g: not g.members),
    (NOT_READY, lambda g: g.topology_epoch is None),
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

    `before` is the (stored, failed) pair of the record that it replaces; `stored` is that of the new one. The broker
    solicits a push only while both the stored and the failed epoch differ from the topology's. It accepts any other
    push as well, and writes stored = -2 before it calls the plugin. Without members the same change of the record
    means that the group or its description is deleted.

    A push that the plugin rejects once more leaves the same record again (`is_same`): anything else that is written
    there changes the group epoch.

    A failed epoch stays in the record when a later push succeeds. So once the description was stored
    (`was_stored_once`), what follows stored = -2 is the end of a push that was counted at its first record.
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

"""The status of a committed partition: rules in a fixed order, by time and not by the number of commits.

A consumer that works has some lag at most moments. So a lag is only judged once it is older than what the group's own
interval between commits explains (`Facts.patience`): until then it is OK, and as long as its age is not known, UNKNOWN.

Of a group that rebalances, the statuses that follow from behaviour are held as they were before: commits pause and
tasks have no owner then. Whether a rebalance takes too long is another question.

While it is not known what a group has done lately, since the job reads late, every status is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

OK = "OK"
UNKNOWN = "UNKNOWN"
LEFT_OVER = "LEFT_OVER"
RECREATED = "RECREATED"
AHEAD = "AHEAD"
LOST = "LOST"
UNOWNED = "UNOWNED"
REWOUND = "REWOUND"
STOPPED = "STOPPED"
STALLED = "STALLED"
CATCHING_UP = "CATCHING_UP"
BEHIND = "BEHIND"

STALLED_COMMITS = 3
STALLED_COMMIT_SECONDS = 60.0
MARKER = 1
"""The commit or abort marker of a transaction, behind the last record."""


@dataclass(slots=True)
class Facts:
    """What is known of a committed partition at a pass. Times are in seconds before this pass."""

    lag: int | None
    """None: the end of the log, or the commit, is not known."""
    allowed: int
    age: float
    """Of the oldest record that is not committed; 0 where only the marker of a transaction is left behind an end that
    does not move, or the lag is not known."""
    age_is_lower_bound: bool
    is_left_over: bool
    is_recreated: bool
    is_ahead: bool
    """The commit lies beyond the end of the log, at this pass and at the one before."""
    lost: int
    """Offsets between the commit and the start of the log."""
    has_owner: bool | None
    """None: not known."""
    is_rewound: bool
    patience: float
    since_commit: float
    since_offset: float
    """Since the first commit of this offset."""
    commits_at_offset: int
    behind_for: float
    """How long the lag has been above what is allowed, at every pass."""
    falls: bool


def _is_lost(facts: Facts) -> bool:
    # A log whose records were all deleted starts behind its last marker; nothing is lost then.
    return facts.lost > (MARKER if facts.lag == 0 else 0)


def _is_ok(facts: Facts) -> bool:
    return (facts.lag or 0) <= facts.allowed or (facts.age <= facts.patience and not facts.age_is_lower_bound)


def _is_too_new(facts: Facts) -> bool:  # with the age itself, and not a lower bound of it, it would be OK
    return facts.age <= facts.patience


def _is_stopped(facts: Facts) -> bool:
    return facts.since_commit > facts.patience and facts.behind_for >= facts.patience


def _is_stalled(facts: Facts) -> bool:
    return facts.commits_at_offset >= STALLED_COMMITS and facts.since_offset >= STALLED_COMMIT_SECONDS


_Rule = tuple[str, Callable[[Facts], bool]]
_FROM_OFFSETS: tuple[_Rule, ...] = (
    (LEFT_OVER, lambda facts: facts.is_left_over),
    (RECREATED, lambda facts: facts.is_recreated),
    (AHEAD, lambda facts: facts.is_ahead),
    (UNKNOWN, lambda facts: facts.lag is None),
    (LOST, _is_lost),
    (OK, _is_ok),
)
_FROM_BEHAVIOUR: tuple[_Rule, ...] = (
    (UNOWNED, lambda facts: facts.has_owner is False),
    (REWOUND, lambda facts: facts.is_rewound),
    (UNKNOWN, _is_too_new),
    (STOPPED, _is_stopped),
    (STALLED, _is_stalled),
    (CATCHING_UP, lambda facts: facts.falls),
    (BEHIND, lambda _facts: True),
)
STATUSES: Mapping[str, str] = MappingProxyType(
    {
        OK: "The lag is at most what is allowed, or no older than the group's interval between commits explains. A lag "
        "without records is OK: markers of transactions, and records of those that were aborted.",
        CATCHING_UP: "The lag falls; `catch_up_seconds` says how long until there is none, if it goes on like that.",
        BEHIND: "The lag does not fall, although offsets are committed.",
        STALLED: "Commits go on, of the same offset, for a minute or longer.",
        STOPPED: "There was lag all the time, and no commit, for three times the group's interval between commits, a "
        "minute at least.",
        REWOUND: "A lower offset was committed than before, and the one before is not reached again; for an hour.",
        UNOWNED: "No member has the task as active, or the group has no members.",
        LOST: "The committed offset was deleted from the log before it was read: `lost_offsets`.",
        RECREATED: "The topic was deleted and created again since the commit, so its offset means nothing. The lag is "
        "null.",
        AHEAD: "The committed offset lies beyond the end of the log: the log was cut, or the topic was created again "
        "with fewer records. The lag is null, and what is written up to that offset may be skipped.",
        LEFT_OVER: "The group committed offsets of this topic, but its topology does not read it. In no sum.",
        UNKNOWN: "There is no commit, or it is not known where the log ends, how old the lag is, or whether there are "
        "records in it.",
    }
)
"""Every status, and what it means."""

BY_RANK = (LOST, RECREATED, AHEAD, STOPPED, UNOWNED, STALLED, REWOUND, BEHIND, UNKNOWN, CATCHING_UP, OK, LEFT_OVER)
"""Every status, the worst first."""
RANK: Mapping[str, int] = MappingProxyType({status: rank for rank, status in enumerate(BY_RANK)})
"""The status of several partitions is the one with the lowest rank."""


def status_of(facts: Facts, before: str | None, *, is_rebalancing: bool, is_late: bool = False) -> tuple[str, bool]:
    """Return the status, and whether it is the one `before`, held since the group rebalances or is not known of now."""
    if is_late:
        return (UNKNOWN, False) if before is None else (before, True)
    for status, holds in _FROM_OFFSETS:
        if holds(facts):
            return status, False
    if is_rebalancing and before is not None:
        return before, True
    return next(status for status, holds in _FROM_BEHAVIOUR if holds(facts)), False

"""The statuses of a committed partition: what each means, and which is worse."""

from __future__ import annotations

from collections.abc import Mapping
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

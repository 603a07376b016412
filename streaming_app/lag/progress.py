"""What the commits of one group to one partition did lately: when, how often, forward or back, and how its lag moved.

A pass sees the newest commit only. So of several commits between two passes one is counted, and the time between
commits is never less than the time between passes.
"""

from __future__ import annotations

from array import array
from math import ceil
from typing import NamedTuple

_BUCKETS = 24  # of the time between commits: up to 1 s, 2 s, 4 s, ... half a year
_MAX_COUNT = 250  # in a bucket; then all counts are halved, so that old commits lose weight
_RESTORED_COUNT = 20
_MIN_PATIENCE = 60.0
_INTERVALS = 3  # without a commit, until it is missed
_WINDOW_SECONDS = 600.0
_FREQUENT = 64.0  # seconds between commits
_MANY = 8  # entries of the window
_STEP_SECONDS = 25.0  # between two entries of the window
_REWOUND_SECONDS = 3600.0  # after that, who set the offsets back is processing what they wanted


class Trend(NamedTuple):
    """How the lag moved within the last ten minutes."""

    falls: bool
    catch_up_seconds: float | None
    """Until there is no lag, if it keeps falling like that."""


class Progress:
    """The state of one committed partition that outlasts a pass."""

    __slots__ = (
        "_gaps",
        "_window",
        "behind_since",
        "commits_at_offset",
        "committed_at",
        "held_since",
        "offset",
        "offset_since",
        "rewound_at",
        "rewound_from",
        "seen_at",
        "status",
        "status_since",
    )

    def __init__(self) -> None:
        self.offset: int | None = None
        self.committed_at: float | None = None
        """Time of the newest commit, by the broker's clock."""
        self.seen_at = 0.0
        """When the job saw it: unlike the broker's time, it can be compared with the job's clock."""
        self.offset_since = 0.0
        """When the job saw the first commit of this offset."""
        self.commits_at_offset = 0
        self.behind_since: float | None = None
        """Since when the lag has been above what is allowed, at every pass."""
        self.rewound_from: int | None = None
        """The offset before a commit of a lower one, until it is reached again."""
        self.rewound_at = 0.0
        self.status: str | None = None
        self.status_since = 0.0
        self.held_since: float | None = None
        self._gaps: bytearray | None = None
        self._window = array("d")

    def observe_commit(self, offset: int, committed_at: float | None, now: float) -> None:
        """Take in the newest commit."""
        if self.offset is None:
            self.seen_at = self.offset_since = now if committed_at is None else min(now, committed_at)
            self.offset, self.committed_at, self.commits_at_offset = offset, committed_at, 1
            return
        if offset == self.offset and (committed_at == self.committed_at or None in {committed_at, self.committed_at}):
            self.committed_at = self.committed_at if committed_at is None else committed_at
            self._expire_rewind(now)
            return
        if committed_at is None or self.committed_at is None:
            self._count_gap(now - self.seen_at)
        else:
            self._count_gap(committed_at - self.committed_at)
        if offset < self.offset and self.rewound_from is None:
            self.rewound_from, self.rewound_at = self.offset, now
        self.commits_at_offset = self.commits_at_offset + 1 if offset == self.offset else 1
        if offset != self.offset:
            self.offset_since = now
        self.offset, self.committed_at, self.seen_at = offset, committed_at, now
        self._expire_rewind(now)

    def _expire_rewind(self, now: float) -> None:
        if self.rewound_from is None or self.offset is None:
            return
        if self.offset >= self.rewound_from or now - self.rewound_at > _REWOUND_SECONDS:
            self.rewound_from = None

    def observe_lag(self, lag: int, now: float, *, allowed: int) -> None:
        """Take in the lag of this pass."""
        if lag <= allowed:
            self.behind_since = None
            del self._window[:]
            return
        if self.behind_since is None or self.behind_since > now:
            self.behind_since = now
        window = self._window
        if window and 0 <= now - window[-2] < _STEP_SECONDS:
            window[-1] = min(window[-1], lag)
        else:
            window.extend((now, lag))
        start = 0
        while now - window[start] > _WINDOW_SECONDS or window[start] > now:
            start += 2
        del window[:start]

    def restart(self) -> None:
        """Forget what was seen of the partition: the topic was created again."""
        self.behind_since = self.rewound_from = None
        del self._window[:]

    @property
    def commit_interval(self) -> float | None:
        """How far apart 95 of 100 commits are at most, in seconds, as a power of two; None before the second commit."""
        gaps = self._gaps
        if gaps is None:
            return None
        needed, seen = ceil(sum(gaps) * 0.95), 0
        for bucket, count in enumerate(gaps):
            seen += count
            if seen >= needed:
                return float(1 << bucket)
        return None

    @property
    def patience(self) -> float:
        """How long the time since a commit, or the age of the lag, says nothing: three intervals, a minute at least."""
        interval = self.commit_interval
        return _MIN_PATIENCE if interval is None else max(_MIN_PATIENCE, _INTERVALS * interval)

    def restore_interval(self, seconds: float) -> None:
        """Assume this `commit_interval`, which an earlier run found."""
        self._gaps = bytearray(_BUCKETS)
        self._gaps[_bucket(seconds)] = _RESTORED_COUNT

    def trend(self) -> Trend:
        """Compare the lowest lag of the newest part of the window with the one of the part before.

        The lowest, since a lag rises from one commit to the next. So a part is half of the window; a quarter, which
        notices sooner that a lag falls, if it has several commits.
        """
        lags = self._window[1::2]
        entries = len(lags)
        if entries < 2:  # noqa: PLR2004 - a part needs one
            return Trend(falls=False, catch_up_seconds=None)
        is_frequent = self.commit_interval is not None and self.commit_interval <= _FREQUENT
        part = max(1, entries // (4 if is_frequent and entries >= _MANY else 2))
        begin, middle = (0 if part * 2 >= entries - 1 else entries - 2 * part), entries - part
        older, newer = min(lags[begin:middle]), min(lags[middle:])
        if newer >= older:
            return Trend(falls=False, catch_up_seconds=None)
        seconds = self._window[2 * lags.index(newer, middle)] - self._window[2 * lags.index(older, begin)]
        return Trend(falls=True, catch_up_seconds=lags[-1] * seconds / (older - newer))

    def _count_gap(self, seconds: float) -> None:
        if seconds <= 0:
            return
        gaps = self._gaps
        if gaps is None:
            gaps = self._gaps = bytearray(_BUCKETS)
        bucket = _bucket(seconds)
        if gaps[bucket] >= _MAX_COUNT:
            gaps[:] = bytes(count // 2 for count in gaps)
        gaps[bucket] += 1


def _bucket(seconds: float) -> int:
    return min(_BUCKETS - 1, (ceil(seconds) - 1).bit_length())

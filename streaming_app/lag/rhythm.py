"""How often a group commits in a partition, and whether its lag falls.

A pass sees only the newest commit, so the measured time between commits is at least the time between passes. Only the
time when there was something to commit counts.
"""

from __future__ import annotations

from array import array
from math import ceil

_BUCKETS = 24  # of the time between commits: up to 1 s, 2 s, 4 s, ... about 97 days
_MAX_COUNT = 250  # at this count in a bucket all counts are halved, so that old commits lose weight
_RESTORED_COUNT = 100  # high, so that a few slow commits after a start do not change the usual interval
_WINDOW_SECONDS = 600.0
_STEP_SECONDS = 25.0  # time between two entries of the window
_MANY = 8  # entries that are enough to compare quarters of the window
_FREQUENT = 64.0  # seconds between commits


class CommitIntervals:
    """Counts of the times between commits."""

    __slots__ = ("_counts", "usual")

    def __init__(self) -> None:
        self._counts: bytearray | None = None
        self.usual: float | None = None
        """The 95th percentile of the times between commits: seconds, a power of two. None before the second commit."""

    def add(self, seconds: float) -> None:
        """Count the time between two commits."""
        if seconds <= 0:
            return
        counts = self._counts = bytearray(_BUCKETS) if self._counts is None else self._counts
        bucket = _bucket(seconds)
        if counts[bucket] >= _MAX_COUNT:
            counts[:] = bytes(count // 2 for count in counts)
        counts[bucket] += 1
        missing, bucket = ceil(sum(counts) * 0.95), 0
        while missing > counts[bucket]:
            missing -= counts[bucket]
            bucket += 1
        self.usual = float(1 << bucket)

    def restore(self, usual: float) -> None:
        """Begin with the usual interval of an earlier run, in seconds."""
        self._counts = bytearray(_BUCKETS)
        self._counts[_bucket(usual)] = _RESTORED_COUNT
        self.usual = float(1 << _bucket(usual))


def _bucket(seconds: float) -> int:
    return min(_BUCKETS - 1, (ceil(seconds) - 1).bit_length())


class LagTrend:
    """The lag of the last ten minutes. It begins again after each pass without lag."""

    __slots__ = ("_window",)

    def __init__(self) -> None:
        self._window = array("d")  # pairs of time and lag

    @property
    def is_known(self) -> bool:
        """Whether there are two entries to compare."""
        return len(self._window) > 2  # noqa: PLR2004

    def clear(self) -> None:
        """Remove all entries, because there is no lag."""
        del self._window[:]

    def add(self, lag: int, now: float) -> None:
        """Add the lag of a pass."""
        window = self._window
        if window and 0 <= now - window[-2] < _STEP_SECONDS:
            window[-1] = min(window[-1], lag)
        else:
            window.extend((now, lag))
        while now - window[0] > _WINDOW_SECONDS or window[0] > now:
            del window[:2]

    def catch_up_seconds(self, usual: float | None) -> float | None:
        """Return in how many seconds the lag will be 0 if it falls at the same rate; None if it does not fall.

        `usual` is the usual time between commits. The lag rises between two commits, so this compares the lowest lag in
        the newest part of the window with the lowest lag in the part before. A part is half of the window. If commits
        are frequent, a part is a quarter, which shows sooner that the lag falls.
        """
        lags = self._window[1::2]
        entries = len(lags)
        if entries < 2:  # noqa: PLR2004 - each part needs one
            return None
        is_frequent = usual is not None and usual <= _FREQUENT
        part = max(1, entries // (4 if is_frequent and entries >= _MANY else 2))
        begin, middle = (0 if part * 2 >= entries - 1 else entries - 2 * part), entries - part
        older, newer = min(lags[begin:middle]), min(lags[middle:])
        if newer >= older:
            return None
        seconds = self._window[2 * lags.index(newer, middle)] - self._window[2 * lags.index(older, begin)]
        return lags[-1] * seconds / (older - newer)

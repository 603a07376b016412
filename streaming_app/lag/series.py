"""What is known of one partition over time: the ends of its log, and the commits of one group to it.

Ends
----
The end offset at a time separates what was written before it from what was written after it. So the time at which an
offset was written lies between the last sample at or below it and the first one above it; within that segment a
constant rate is assumed. Nothing is assumed outside the samples: of an offset below the first one it is only known that
it is at least as old as that sample.

An end that does not move is two samples, the first and the last with that offset: what follows was written after the
second.

Commits
-------
When the commits were lately, how often, forward or back, and how their lag moved. A pass sees the newest commit only.
So of several commits between two passes one is counted, and the time between commits is never less than the time
between passes. Of that time only the part counts in which there was something to commit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from math import ceil, inf
from typing import NamedTuple

_MAX_SAMPLES = 64
_SPREAD = 61  # partitions that begin at the same time are then not thinned out in the same pass
_RELATIVE_ERROR = 1 / 16  # of the age, by which thinning out may move the time of an offset
_MIN_ERROR = 1.0  # seconds
_KEPT_SECONDS = 14 * 86_400.0

_BUCKETS = 24  # of the time between commits: up to 1 s, 2 s, 4 s, ... half a year
_MAX_COUNT = 250  # in a bucket; then all counts are halved, so that old commits lose weight
_RESTORED_COUNT = 100  # so that what goes wrong just after a start is not taken for usual
_MIN_PATIENCE = 60.0
_INTERVALS = 3  # without a commit, until it is missed
_WINDOW_SECONDS = 600.0
_FREQUENT = 64.0  # seconds between commits
_MANY = 8  # entries of the window
_STEP_SECONDS = 25.0  # between two entries of the window
_REWOUND_SECONDS = 3600.0  # after that, who set the offsets back is processing what they wanted


class Age(NamedTuple):
    """How long ago an offset was written, in seconds; with `is_lower_bound`, at least that long ago."""

    seconds: float
    is_lower_bound: bool


class EndSamples:
    """The samples of one partition, oldest first. Both offsets and times never decrease."""

    __slots__ = ("_offsets", "_times")

    def __init__(self, samples: Iterable[tuple[int, float]] = ()) -> None:
        """Begin with these pairs of end offset and time, as `pairs` returned them."""
        self._offsets, self._times = array("q"), array("d")
        for offset, time in samples:
            self.add(offset, time)

    def __len__(self) -> int:
        return len(self._offsets)

    def pairs(self) -> list[tuple[int, float]]:
        """Return the pairs of end offset and time."""
        return list(zip(self._offsets, self._times, strict=True))

    def add(self, offset: int, time: float) -> bool:
        """Add the end offset at a time; return whether it differs from the one before.

        Samples that contradict it are removed: higher offsets, since the log was truncated, and later times, since the
        clock was set back.
        """
        offsets, times = self._offsets, self._times
        while offsets and (offsets[-1] > offset or times[-1] > time):
            offsets.pop()
            times.pop()
        count = len(offsets)
        moved = not count or offsets[-1] != offset
        if count > 1 and not moved and offsets[-2] == offset:
            times[-1] = time
            return False
        offsets.append(offset)
        times.append(time)
        if count >= _MAX_SAMPLES + offsets[0] % _SPREAD:
            self._thin_out(time)
        return moved

    def clear(self) -> None:
        """Forget all samples: the topic was created again."""
        del self._offsets[:], self._times[:]

    def age(self, offset: int, now: float) -> Age | None:
        """Return how long ago `offset` was written; 0 if it is at or beyond the newest end. None without samples."""
        offsets, times = self._offsets, self._times
        after = bisect_right(offsets, offset)
        if after == len(offsets):
            return Age(0.0, is_lower_bound=False) if after else None
        if after == 0:
            return Age(max(0.0, now - times[0]), is_lower_bound=True)
        share = (offset - offsets[after - 1]) / (offsets[after] - offsets[after - 1])
        written = times[after - 1] + share * (times[after] - times[after - 1])
        return Age(max(0.0, now - written), is_lower_bound=False)

    def written_by(self, offset: int) -> float | None:
        """Return the first sample by which the record at `offset` had been written; None if there is none."""
        after = bisect_right(self._offsets, offset)
        return self._times[after] if after < len(self._times) else None

    def _thin_out(self, now: float) -> None:
        """Remove the samples that interpolation between the others replaces, and those that are too old.

        A time may move by a sixteenth of its age. One pass: from each sample that is kept, the line is drawn as far as
        it passes all samples in between closely enough.
        """
        offsets, times = self._offsets, self._times
        last = len(offsets) - 1
        anchor = next((i for i, time in enumerate(times) if now - time <= _KEPT_SECONDS), last)
        kept, low, high = [anchor], -inf, inf  # low and high bound the slope of the line from the anchor
        for i in range(anchor + 1, last + 1):
            distance = offsets[i] - offsets[anchor]
            if distance and not low <= (times[i] - times[anchor]) / distance <= high:
                anchor, low, high = i - 1, -inf, inf
                kept.append(anchor)
                distance = offsets[i] - offsets[anchor]
            if not distance:  # the end did not move: both samples are needed
                anchor, low, high = i, -inf, inf
                kept.append(anchor)
                continue
            error = max(_MIN_ERROR, (now - times[i]) * _RELATIVE_ERROR)
            low = max(low, (times[i] - error - times[anchor]) / distance)
            high = min(high, (times[i] + error - times[anchor]) / distance)
        if kept[-1] != last:
            kept.append(last)
        del kept[:-_MAX_SAMPLES]
        self._offsets = array("q", [offsets[i] for i in kept])
        self._times = array("d", [times[i] for i in kept])


class Trend(NamedTuple):
    """How the lag moved within the last ten minutes."""

    falls: bool
    catch_up_seconds: float | None
    """Until there is no lag, if it keeps falling like that."""


class CommitSeries:
    """The commits of one group to one partition: what of them outlasts a pass."""

    __slots__ = (
        "_gaps",
        "_observed_at",
        "_window",
        "behind_since",
        "commit_interval",
        "commits_at_offset",
        "committed_at",
        "empty_to",
        "had_record",
        "held_since",
        "is_beyond_end",
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
        self.empty_to = 0
        """No record lies between the offset and this one."""
        self.had_record = False
        """A record was seen beyond this offset."""
        self.behind_since: float | None = None
        """Since when the lag has been above what is allowed, at every pass."""
        self.rewound_from: int | None = None
        """The offset before a commit of a lower one, until it is reached again."""
        self.rewound_at = 0.0
        self.is_beyond_end = False
        """Whether the newest commit was beyond the end of the log at the pass before."""
        self.status: str | None = None
        self.status_since = 0.0
        self.held_since: float | None = None
        self.commit_interval: float | None = None
        """How far apart 95 of 100 commits are at most, in seconds, as a power of two; None before the second commit."""
        self._gaps: bytearray | None = None
        self._observed_at: float | None = None
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
        gap = now - self.seen_at
        if committed_at is not None and self.committed_at is not None:
            gap = committed_at - self.committed_at
        self._count_gap(min(gap, self._worked_for(now)))
        if offset < self.offset and self.rewound_from is None:
            self.rewound_from, self.rewound_at = self.offset, now
        self.commits_at_offset = self.commits_at_offset + 1 if offset == self.offset else 1
        if offset != self.offset:
            self.offset_since = now
            self.empty_to, self.had_record = 0, False
        self.offset, self.committed_at, self.seen_at = offset, committed_at, now
        self._expire_rewind(now)

    def _worked_for(self, now: float) -> float:
        """Return for how long there may have been something to commit: the time before that says nothing."""
        since = self._observed_at if self.behind_since is None else self.behind_since
        return inf if since is None else now - since

    def _expire_rewind(self, now: float) -> None:
        if self.rewound_from is None or self.offset is None:
            return
        if self.offset >= self.rewound_from or now - self.rewound_at > _REWOUND_SECONDS:
            self.rewound_from = None

    def observe_lag(self, lag: int, now: float, *, allowed: int) -> None:
        """Take in the lag of this pass."""
        self._observed_at = now
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
        self.empty_to, self.had_record = 0, False
        del self._window[:]

    @property
    def patience(self) -> float:
        """How long the time since a commit, or the age of the lag, says nothing: three intervals, a minute at least."""
        interval = self.commit_interval
        return _MIN_PATIENCE if interval is None else max(_MIN_PATIENCE, _INTERVALS * interval)

    def restore_interval(self, seconds: float) -> None:
        """Assume this `commit_interval`, which an earlier run found."""
        self._gaps = bytearray(_BUCKETS)
        self._gaps[_bucket(seconds)] = _RESTORED_COUNT
        self.commit_interval = _interval(self._gaps)

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
        self.commit_interval = _interval(gaps)


def _interval(gaps: bytearray) -> float:
    missing = ceil(sum(gaps) * 0.95)
    bucket = 0
    while missing > gaps[bucket]:
        missing -= gaps[bucket]
        bucket += 1
    return float(1 << bucket)


def _bucket(seconds: float) -> int:
    return min(_BUCKETS - 1, (ceil(seconds) - 1).bit_length())

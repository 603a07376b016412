"""The ends of the log of one partition: the current ones, and samples of the end offset over time.

A sample is an end offset and its time. A record at an offset was written after the last sample at or below the offset,
and before the first sample above it; between the two, a constant rate is assumed. For an offset below the first sample
it is only known that its record is at least as old as this sample. If the end does not move, two samples hold its
offset, the first and the last one: later records were written after the second.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

TopicPartition = tuple[str, int]

_MAX_SAMPLES = 64
_SPREAD = 61  # spreads the work: partitions that begin at the same time are thinned out in different passes
_RELATIVE_ERROR = 1 / 16  # of its age: the error of an offset's time that thinning out may cause
_MIN_ERROR = 1.0  # seconds
_KEPT_SECONDS = 14 * 86_400.0


class Tail(NamedTuple):
    """What a read with isolation level READ_COMMITTED found: where there are records, and where not."""

    end: int
    """The last stable offset at the read: such a read ends there."""
    record_at: int = -1
    """The highest offset that is known to have a record."""
    empty_from: int = 0
    """From here to `empty_to` there are only transaction markers and records of aborted transactions."""
    empty_to: int = 0
    is_denied: bool = False

    def has_record(self, offset: int) -> bool | None:
        """Return whether a record lies between this offset and `end`; None if it is not known."""
        if offset <= self.record_at:
            return True
        return False if self.empty_from <= offset and self.empty_to >= self.end else None


class LogEnds(NamedTuple):
    """The ends of the log of one partition; None for a value that the brokers did not return."""

    end: int | None = None
    """The high watermark: the offset after the newest record that consumers may read."""
    start: int | None = None
    stable: int | None = None
    """The last stable offset: the start of the oldest open transaction, or else the high watermark."""
    topic_id: str | None = None
    at: float | None = None
    """When the job asked the leader for `end`, by the job's clock."""
    start_at: float | None = None
    """When the job asked for `start`, which it does less often."""
    leader: int | None = None
    """The id of the broker that leads the partition, or of the last known leader."""
    answered_at: float | None = None
    """When this broker last answered."""
    tail: Tail | None = None
    """The records before `stable`, or before an earlier last stable offset."""


NO_ENDS = LogEnds()


class Age(NamedTuple):
    """How long ago an offset was written, in seconds. With `is_lower_bound`: at least so long ago."""

    seconds: float
    is_lower_bound: bool


class EndSamples:
    """The samples of one partition, oldest first. Both offsets and times never decrease."""

    __slots__ = ("_offsets", "_times", "topic_id")

    def __init__(self, samples: Iterable[tuple[int, float]] = (), topic_id: str | None = None) -> None:
        """Begin with pairs of end offset and time, as `pairs` returned them for the topic with this id."""
        self._offsets, self._times, self.topic_id = array("q"), array("d"), topic_id
        for offset, time in samples:
            self.add(offset, time)

    def pairs(self) -> list[tuple[int, float]]:
        """Return the pairs of end offset and time."""
        return list(zip(self._offsets, self._times, strict=True))

    def add(self, offset: int, time: float) -> bool:
        """Add the end offset at a time. Return whether it differs from the offset of the sample before.

        Samples that contradict it are removed: those with a higher offset (the log was truncated), and those with a
        later time (the clock was set back).
        """
        offsets, times = self._offsets, self._times
        moved = not offsets or offsets[-1] != offset
        while offsets and (offsets[-1] > offset or times[-1] > time):
            offsets.pop()
            times.pop()
        count = len(offsets)
        if count > 1 and offsets[-1] == offsets[-2] == offset:
            times[-1] = time
            return moved
        offsets.append(offset)
        times.append(time)
        if count >= _MAX_SAMPLES + offsets[0] % _SPREAD:
            self._thin_out(time)
        return moved

    def age(self, offset: int, now: float) -> Age | None:
        """Return how long ago `offset` was written: 0 if it is at or beyond the newest end. None without samples."""
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
        """Return the time of the first sample above `offset`: its record was written before. None if there is none."""
        after = bisect_right(self._offsets, offset)
        return self._times[after] if after < len(self._times) else None

    def end_by(self, time: float) -> int | None:
        """Return an end offset that the log had not passed at a time; None without samples."""
        after = bisect_left(self._times, time)
        return self._offsets[min(after, len(self._offsets) - 1)] if self._offsets else None

    def moved_at(self) -> float | None:
        """Return when the log was first seen with its newest end; None if it was not seen with another one."""
        first = bisect_left(self._offsets, self._offsets[-1]) if self._offsets else 0
        return self._times[first] if first else None

    def _thin_out(self, now: float) -> None:
        """Remove old samples, and those that interpolation between the others replaces.

        Interpolation may move a time by a sixteenth of its age. The algorithm makes one pass: from each kept sample, it
        takes the longest line that passes closely enough to all samples in between.
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

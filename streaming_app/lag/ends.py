"""What is known of the log of one partition: its ends now, and when it ended where.

The end offset at a time separates what was written before it from what was written after it. So the time at which an
offset was written lies between the last sample at or below it and the first one above it; within that segment a
constant rate is assumed. Nothing is assumed outside the samples: of an offset below the first one it is only known that
it is at least as old as that sample. An end that does not move is two samples, the first and the last with that offset:
what follows was written after the second.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

TopicPartition = tuple[str, int]

_MAX_SAMPLES = 64
_SPREAD = 61  # partitions that begin at the same time are then not thinned out in the same pass
_RELATIVE_ERROR = 1 / 16  # of the age, by which thinning out may move the time of an offset
_MIN_ERROR = 1.0  # seconds
_KEPT_SECONDS = 14 * 86_400.0


class Tail(NamedTuple):
    """What a read as READ_COMMITTED found of the records before one end of a log, which only moves if they do."""

    end: int
    record_at: int = -1
    """The highest offset at which a record is known."""
    empty_from: int = 0
    """From here to `empty_to` are only markers of transactions, and records of those that were aborted."""
    empty_to: int = 0
    is_denied: bool = False

    def has_record(self, offset: int) -> bool | None:
        """Tell whether a record lies between this offset and the end; None: not known."""
        if offset <= self.record_at:
            return True
        return False if self.empty_from <= offset and self.empty_to >= self.end else None


class LogEnds(NamedTuple):
    """The ends of the log of one partition; what the brokers did not say is None."""

    end: int | None = None
    """The high watermark: the offset after the newest record that consumers may read."""
    start: int | None = None
    stable: int | None = None
    """The last stable offset: where the oldest open transaction begins, else the high watermark."""
    topic_id: str | None = None
    at: float | None = None
    """When the leader was asked, by the job's clock."""
    start_at: float | None = None
    """When it was asked for the start, which is less often."""
    leader: int | None = None
    """The id of the broker that leads the partition, or did when it was last known."""
    answered_at: float | None = None
    """When that broker last answered."""
    tail: Tail | None = None
    """What was read before `end`, or before an earlier end."""


NO_ENDS = LogEnds()


class Age(NamedTuple):
    """How long ago an offset was written, in seconds; with `is_lower_bound`, at least that long ago."""

    seconds: float
    is_lower_bound: bool


class EndSamples:
    """The samples of one partition, oldest first. Both offsets and times never decrease."""

    __slots__ = ("_offsets", "_times", "topic_id")

    def __init__(self, samples: Iterable[tuple[int, float]] = (), topic_id: str | None = None) -> None:
        """Begin with these pairs of end offset and time, as `pairs` returned them, of the topic with this id."""
        self._offsets, self._times, self.topic_id = array("q"), array("d"), topic_id
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

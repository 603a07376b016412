"""Whether what waits in a partition becomes less: the lowest value of the newest minutes against that of those before.

Between two commits both the waiting offsets and the age of the oldest record rise. So only the lowest values of a time
in which the group commits at least once are compared.
"""


class Trend:
    """The lowest values of two spans of time, one after the other."""

    __slots__ = ("_before", "_began", "_low")

    def __init__(self, low: tuple[float, float] | None = None) -> None:
        """Begin with a time and the value that an earlier run stored then: the first span of this run follows it."""
        self._before: tuple[float, float] | None = None
        self._low, self._began = low, 0.0

    @property
    def is_known(self) -> bool:
        """Whether there are two spans to compare."""
        return self._before is not None

    def add(self, value: float, now: float, span: float) -> None:
        """Add the value of a pass. `span`: how many seconds a span lasts."""
        if self._low is None or not 0 <= now - self._began < span:
            is_recent = self._low is not None and now - self._low[0] < 2 * span
            self._before, self._low, self._began = self._low if is_recent else None, (now, value), now
        elif value < self._low[1]:
            self._low = now, value

    def seconds_left(self) -> float | None:
        """Return in how many seconds the value will be 0 if it falls at the same rate; None if it does not fall."""
        if self._before is None or self._low is None:
            return None
        (began, before), (at, low) = self._before, self._low
        return low * (at - began) / (before - low) if low < before else None

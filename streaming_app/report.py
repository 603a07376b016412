"""Lines for the operator: the type of functions that take one, and a filter against repeated lines."""

import re
from collections import deque
from collections.abc import Callable

_DURATION = re.compile(r"\b\d+(\.\d+)?\s?(ns|µs|ms|s)\b")
Report = Callable[[str], None]
"""Takes one line for whoever runs the job or the command, without its end."""


class ReportOnce:
    """Reports a line unless one of its last ones was the same, up to durations. Use it from one thread."""

    def __init__(self, report: Report, memory: int = 1) -> None:
        """`memory`: so many lines are not repeated, the newest ones; with 1, a line is if another one came between."""
        self._report = report
        self._known: deque[str] = deque(maxlen=memory)

    def __call__(self, line: str) -> None:
        """Report the line if it is new."""
        if (text := _DURATION.sub("", line)) not in self._known:
            self._known.append(text)
            self._report(line)

    @property
    def has_any(self) -> bool:
        """Whether anything was reported since the last `clear`."""
        return bool(self._known)

    def clear(self) -> bool:
        """Forget what was reported, so that it is reported again; return whether that was anything."""
        had_any = self.has_any
        self._known.clear()
        return had_any

"""Shows how far a download is: one line that changes on a terminal, a line now and then in a log."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType

from typing_extensions import Self

from streaming_app.escapes import escape

_TERMINAL_SECONDS = 0.5  # between two changes of the line
_LOG_SECONDS = 15.0  # between two lines; the first comes after a tenth of it, so that short downloads print none
_ERASE_LINE = "\r\x1b[2K"


class ProgressLine:
    """Shows a text on stderr if it is a terminal; else it gives lines, each once, to `report`."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._is_terminal = sys.stderr.isatty()
        self._due_at = time.monotonic() + (_TERMINAL_SECONDS if self._is_terminal else _LOG_SECONDS / 10)
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_terminal and self._last:
            sys.stderr.write(_ERASE_LINE)
            sys.stderr.flush()

    def is_due(self) -> bool:
        """Return whether it is time for the next text."""
        return time.monotonic() >= self._due_at

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""
        self._due_at = time.monotonic() + (_TERMINAL_SECONDS if self._is_terminal else _LOG_SECONDS)
        if text == self._last:
            return
        self._last = text
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            sys.stderr.write(_ERASE_LINE + escape(text)[: columns - 1])
            sys.stderr.flush()
        else:
            self._report(text)

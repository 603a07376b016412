"""The line of a program's log that says why it ended."""

from __future__ import annotations

import re
from pathlib import Path

_STACK_FRAME = re.compile(r"\s+(at |\.\.\. )")


def last_line(log_file: Path, *words: str, start: int = 0) -> str:
    """Return the last line of a log that contains one of `words`; without such a line, the last line of all.

    Frames of a stack trace do not count, nor do the first `start` bytes.
    """
    lines = log_file.read_bytes()[start:].decode("utf-8", "replace").splitlines()
    messages = [line.strip() for line in lines if line.strip() and not _STACK_FRAME.match(line)]
    matching = [line for line in messages if any(word in line for word in words)]
    return (matching or messages or ["nothing was logged"])[-1]

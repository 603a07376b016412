"""The result of one check."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"


class Result(NamedTuple):
    """What was checked, how it went, and what to do about it."""

    status: str
    """`failed` if the job cannot work, `warning` if it can, with less or later, `skipped` if not checked."""
    check: str
    text: str
    """What was found."""
    remedy: str = ""
    """What to do; empty where there is nothing to do."""

    @property
    def line(self) -> str:
        """What was checked, what was found, and what to do, in one line."""
        return f"{self.check}: {self.text}{f'; {self.remedy}' if self.remedy else ''}"


ok, warning, failed, skipped = (partial(Result, status) for status in (OK, WARNING, FAILED, SKIPPED))

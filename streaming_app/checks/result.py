"""The result of one check."""

from functools import partial
from typing import NamedTuple

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"


class Result(NamedTuple):
    """The name of a check, its result, and what to do."""

    status: str
    """`failed`: the job cannot work. `warning`: it works with restrictions, or later. `skipped`: not checked."""
    check: str
    text: str
    """The result."""
    remedy: str = ""
    """What to do; empty if there is nothing to do."""

    @property
    def line(self) -> str:
        """The check, its result, and what to do, in one line."""
        return f"{self.check}: {self.text}{f'; {self.remedy}' if self.remedy else ''}"


ok, warning, failed, skipped = (partial(Result, status) for status in (OK, WARNING, FAILED, SKIPPED))

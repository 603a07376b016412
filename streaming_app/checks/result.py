"""The result of one check."""

from functools import partial
from typing import NamedTuple

OK, WARNING, FAILED, SKIPPED, UNKNOWN = "ok", "warning", "failed", "skipped", "not known"


class Result(NamedTuple):
    """The name of a check, its result, and what to do."""

    status: str
    """`failed`: it cannot work. `warning`: it works with restrictions, or later. `skipped`: not checked. `not known`:
    neither the log nor the brokers show it, and the remedy says how to find out."""
    check: str
    text: str
    remedy: str = ""
    """What to do; empty if there is nothing to do."""

    @property
    def line(self) -> str:
        """The check, its result, and what to do, in one line."""
        return f"{self.check}: {self.text}{f'; {self.remedy}' if self.remedy else ''}"


ok, warning, failed, skipped = (partial(Result, status) for status in (OK, WARNING, FAILED, SKIPPED))

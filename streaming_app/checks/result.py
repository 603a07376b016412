"""The result of one check."""

from __future__ import annotations

from typing import NamedTuple

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"


class Result(NamedTuple):
    """What was checked, how it went, and what to do about it.

    `status`: `failed` if the job cannot work, `warning` if it can, with less or later, `skipped` if it could not be
    checked.
    """

    check: str
    status: str
    text: str
    """What was found."""
    remedy: str = ""
    """What to do; empty where there is nothing to do."""

    @property
    def line(self) -> str:
        """What was checked, what was found, and what to do, in one line."""
        return f"{self.check}: {self.text}{f'; {self.remedy}' if self.remedy else ''}"


def ok(check: str, text: str) -> Result:
    """Return that a check found nothing wrong."""
    return Result(check, OK, text)


def warning(check: str, text: str, remedy: str = "") -> Result:
    """Return that a check found something that the job can do without."""
    return Result(check, WARNING, text, remedy)


def failed(check: str, text: str, remedy: str = "") -> Result:
    """Return that a check found something without which the job cannot work."""
    return Result(check, FAILED, text, remedy)


def skipped(check: str, text: str) -> Result:
    """Return that something could not be checked, and why."""
    return Result(check, SKIPPED, text)

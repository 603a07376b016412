"""Mutes: for some time, the job sends no alerts of some groups. It still evaluates the rules and writes the table.

A mute is a request to the job, see `tables.request_files`. A newer mute with the same pattern replaces an older one, so
a mute of 0 s ends it.
"""

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from streaming_app.alerts.alert import Alert
from streaming_app.errors import WarehouseError
from streaming_app.health.time_intervals import TimeInterval, contain, next_change
from streaming_app.regex import Regex, given_regex
from streaming_app.report import Report, ReportOnce
from streaming_app.section import Pattern
from streaming_app.tables.location import Location
from streaming_app.tables.reader import open_table
from streaming_app.tables.request_files import RequestFiles
from streaming_app.text import format_duration, parse_duration

MAX_SECONDS = 30 * 86_400.0
_MAX_REASON, _MAX_REGEX = 500, 1_000  # characters
_KEPT = timedelta(days=30)  # how long an ended mute is kept, for the page
_CLOCK_DIFFERENCE = timedelta(minutes=5)  # allowed between the machines of the command and the job
_REPORTED_FILES = 1_000  # unreadable files that are remembered, so that each is reported only once
_KIND = "silences"
_ANY = Regex(".*")
_SUFFIX = ".json"


class Mute(BaseModel):
    """One mute."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    pattern: Pattern
    """The whole id of a group must match it."""
    starts_at: AwareDatetime
    ends_at: AwareDatetime
    reason: str = Field(max_length=_MAX_REASON)
    created_by: str

    def is_active(self, now: datetime) -> bool:
        """Return whether the mute has started and not ended."""
        return self.starts_at - _CLOCK_DIFFERENCE <= now < self.ends_at

    def matches(self, alert: Alert) -> bool:
        """Return whether this mute is for the alert. Alerts about the job or the cluster are never muted."""
        return alert.group_id is not None and self.pattern.matches(alert.group_id)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if timedelta(seconds=MAX_SECONDS) < self.ends_at - self.starts_at:
            raise ValueError(f"a mute may last {format_duration(MAX_SECONDS)} at most")
        return self


def new_mute(*, pattern: str, duration: str, reason: str, created_by: str, now: datetime) -> Mute:
    """Return a mute that starts now. Raises ValueError with one line for the user if an argument is invalid."""
    try:
        seconds = parse_duration(duration, MAX_SECONDS)
    except ValueError as error:
        raise ValueError(f"--for {error}") from None
    for name, text, most in (("PATTERN", pattern, _MAX_REGEX), ("--reason", reason, _MAX_REASON)):
        if len(text) > most:
            raise ValueError(f"{name} must have at most {most:,} characters")
    try:
        regex = given_regex(pattern)
    except ValueError as error:
        raise ValueError(f"PATTERN {error}") from None
    return Mute(
        pattern=regex,
        starts_at=now,
        ends_at=now + timedelta(seconds=seconds),
        reason=" ".join(reason.split()),
        created_by=created_by,
    )


class Mutes:
    """The mutes of one cluster, as of the last `refresh`. It reads each file once."""

    def __init__(
        self,
        warehouse: Location | Path,
        cluster: str,
        report: Report = lambda _line: None,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        times_of: Callable[[str], Sequence[TimeInterval]] = lambda _group_id: (),
    ) -> None:
        """Begin without mutes.

        `report` gets one line for each file without effect. `times_of` returns the `mute_times` of a group in the
        configuration.
        """
        self._warehouse, self._files = Location.of(warehouse), RequestFiles(warehouse, cluster, _KIND)
        self._report_once, self._now, self._times_of = ReportOnce(report, _REPORTED_FILES), now, times_of
        self._by_name: dict[str, Mute] = {}
        self._errors: tuple[str, ...] = ()
        self.all: tuple[Mute, ...] = ()
        """All mutes, also ended ones."""
        self.active: tuple[Mute, ...] = ()
        """The active mutes, sorted by their end."""

    def refresh(self) -> None:
        """Read new files. If the directory cannot be read, the mutes stay as they were."""
        try:
            self._read_files()
        except WarehouseError as error:
            self._errors = (str(error),)
        now = self._now()
        self.active = tuple(sorted((one for one in self.all if one.is_active(now)), key=lambda one: one.ends_at))
        for line in self._errors:
            self._report_once(f"mutes: {line}")

    def find(self, alert: Alert) -> Mute | None:
        """Return the active mute of an alert, the one that ends last; None if there is none."""
        found = next((one for one in reversed(self.active) if one.matches(alert)), None)
        times = self._times_of(alert.group_id) if alert.group_id is not None else ()
        if found or not times or not contain(times, now := self._now()):
            return found
        longest = now + timedelta(seconds=MAX_SECONDS)
        ends_at = min(next_change(times, now) or longest, longest)
        reason, by = "its mute_times", "the configuration"
        return Mute(pattern=_ANY, starts_at=now, ends_at=ends_at, reason=reason, created_by=by)

    def add(self, mute: Mute) -> None:
        """Write a mute, which the job reads at its next evaluation, and remove the files of old mutes.

        Raises WarehouseError, also if there is no warehouse, or if the mute ends one that does not exist.
        """
        open_table(self._warehouse / "groups")
        self.refresh()
        for name, old in self._by_name.items():
            if old.ends_at + _KEPT < mute.starts_at:
                self._files.remove(name)
        same = [one for one in self.all if one.pattern == mute.pattern]
        if mute.ends_at == mute.starts_at and not any(one.is_active(mute.starts_at) for one in same):
            none = f"No mute of {mute.pattern.pattern!r} is active: `streams-groups alerts` shows the active mutes"
            raise WarehouseError(self._errors[0] if self._errors else none)
        # the clock of the machine that wrote the replaced mute may be ahead
        last = max((one.starts_at + timedelta(microseconds=1) for one in same), default=mute.starts_at)
        stored = mute.model_copy(update={"starts_at": max(mute.starts_at, last)})
        self._files.write(f"{secrets.token_hex(4)}{_SUFFIX}", stored.model_dump_json(indent=2) + "\n")

    def _read_files(self) -> None:
        names = self._files.names()
        if names is None:
            return
        by_name, errors = dict[str, Mute](), list[str]()
        for name in sorted(name for name in names if name.endswith(_SUFFIX)):
            try:
                if name in self._by_name:
                    by_name[name] = self._by_name[name]
                elif text := self._files.read(name):
                    by_name[name] = Mute.model_validate_json(text)
            except WarehouseError as error:  # noqa: PERF203 - each names its file
                errors.append(str(error))
            except ValidationError:
                errors.append(f"{self._files.directory / name} is not a mute that this release can read")
        self._by_name, self._errors = by_name, tuple(errors)
        ends, found = dict[Regex, datetime](), list[Mute]()
        for mute in sorted(by_name.values(), key=lambda one: one.starts_at, reverse=True):
            # a mute ends at the latest when the next one with its pattern begins
            ends_at = min(mute.ends_at, ends.get(mute.pattern, mute.ends_at))
            ends[mute.pattern] = min(mute.starts_at, ends_at)
            found.append(mute.model_copy(update={"ends_at": ends_at}))
        self.all = tuple(found)

"""Mutes: operators keep alerts of some groups from being sent for a while. The rules and the table go on meanwhile.

A mute is a request to the job, see `tables.request_files`. A newer one with the same pattern replaces it, so one that
lasts 0 s ends it. The directory is that of the silences of 0.2.0: those of every rule are mutes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pydantic import AliasChoices, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from streaming_app.alerts.problem import Problem
from streaming_app.errors import WarehouseError
from streaming_app.regex import Regex, given_regex
from streaming_app.report import Report, ReportOnce
from streaming_app.section import Pattern
from streaming_app.tables.location import Location
from streaming_app.tables.reader import open_table
from streaming_app.tables.request_files import RequestFiles
from streaming_app.text import format_duration, parse_duration
from streaming_app.time_intervals import TimeInterval, contain, next_change

MAX_SECONDS = 30 * 86_400.0
_MAX_REASON, _MAX_REGEX = 500, 1_000  # characters
_KEPT = timedelta(days=30)  # after its end, for the page
_CLOCK_DIFFERENCE = timedelta(minutes=5)  # between the machines of the command and the job
_REPORTED_FILES = 1_000  # that cannot be read, of which each is reported once
_KIND = "silences"
_ANY = Regex(".*")
_SUFFIX, _EXPIRED_SUFFIX = ".json", ".expired"  # the second one ended a silence of 0.2.0


class Mute(BaseModel):
    """One mute."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, populate_by_name=True)

    pattern: Pattern = Field(validation_alias=AliasChoices("pattern", "group"))
    """The whole id of a group must match it."""
    starts_at: AwareDatetime
    ends_at: AwareDatetime
    reason: str = Field(max_length=_MAX_REASON, validation_alias=AliasChoices("reason", "comment"))
    created_by: str

    def is_active(self, now: datetime) -> bool:
        """Return whether it has started and not ended."""
        return self.starts_at - _CLOCK_DIFFERENCE <= now < self.ends_at

    def matches(self, alert: Problem) -> bool:
        """Return whether the alert is muted while this is active. One about the job or the cluster never is."""
        return alert.group_id is not None and self.pattern.matches(alert.group_id)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if timedelta(seconds=MAX_SECONDS) < self.ends_at - self.starts_at:
            raise ValueError(f"a mute may last {format_duration(MAX_SECONDS)} at most")
        return self


class _Silence(Mute):
    """A mute as it is stored, or a silence of 0.2.0, which may have been of one rule."""

    rule: str | None = None


def new_mute(*, pattern: str, duration: str, reason: str, created_by: str, now: datetime) -> Mute:
    """Return a mute that starts now. Raises ValueError, with one line for the user, if it must not be."""
    try:
        seconds = parse_duration(duration, MAX_SECONDS)
    except ValueError as error:
        raise ValueError(f"--for {error}") from None
    if len(pattern) > _MAX_REGEX:
        raise ValueError(f"PATTERN must have at most {_MAX_REGEX:,} characters")
    try:
        regex = given_regex(pattern)
    except ValueError as error:
        raise ValueError(f"PATTERN {error}") from None
    if len(reason) > _MAX_REASON:
        raise ValueError(f"--reason must have at most {_MAX_REASON} characters")
    return Mute(
        pattern=regex,
        starts_at=now,
        ends_at=now + timedelta(seconds=seconds),
        reason=" ".join(reason.split()),
        created_by=created_by,
    )


class MuteStore:
    """The mutes of one cluster. Every method raises WarehouseError when the files cannot be read or written."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._warehouse, self._cluster = Location.of(warehouse), cluster
        self._files = RequestFiles(warehouse, cluster, _KIND)

    def add(self, mute: Mute) -> None:
        """Write a mute; the job finds it at its next evaluation. Files of those that ended long ago are removed.

        Raises WarehouseError also if there is no warehouse, or if it is to end one that there is not.
        """
        open_table(self._warehouse / "groups")
        reader = MuteReader(self._warehouse, self._cluster)
        reader.refresh()
        for name, old in reader.files.items():
            if old.ends_at + _KEPT < mute.starts_at:
                for suffix in (_EXPIRED_SUFFIX, _SUFFIX):
                    self._files.remove(name.removesuffix(_SUFFIX) + suffix)
        same = [one for one in reader.mutes if one.pattern.pattern == mute.pattern.pattern]
        if mute.ends_at == mute.starts_at and not any(one.is_active(mute.starts_at) for one in same):
            none = f"No mute of {mute.pattern.pattern!r} is active: `streams-groups alerts` shows those that are"
            raise WarehouseError(reader.errors[0] if reader.errors else none)
        # the clock of whoever added the one that this replaces may be ahead
        last = max((one.starts_at + timedelta(microseconds=1) for one in same), default=mute.starts_at)
        stored = mute.model_copy(update={"starts_at": max(mute.starts_at, last)})
        self._files.write(f"{secrets.token_hex(4)}{_SUFFIX}", stored.model_dump_json(indent=2) + "\n")


class MuteReader:
    """Reads the mutes of a cluster, each once; `mutes` are those of the last `refresh`."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._files = RequestFiles(warehouse, cluster, _KIND)
        self.files: dict[str, _Silence] = {}
        """What was read, by the name of the file."""
        self.mutes: tuple[Mute, ...] = ()
        self.ignored: tuple[_Silence, ...] = ()
        """Silences of 0.2.0 that are no mutes."""
        self.errors: tuple[str, ...] = ()
        """A line for each file that could not be read; its mute, if it is one, does not count."""

    def refresh(self) -> None:
        """Read new files, if that is due. When the directory cannot be read, the mutes stay as they were."""
        try:
            names = self._files.names()
        except WarehouseError as error:
            self.errors = (str(error),)
            return
        if names is None:
            return
        errors: list[str] = []
        wanted = sorted(name for name in names if name.endswith(_SUFFIX))
        for name in wanted:
            if name not in self.files:
                self._read(name, errors)
        self.files = {name: self.files[name] for name in wanted if name in self.files}
        found = [one for name, one in self.files.items() if name.removesuffix(_SUFFIX) + _EXPIRED_SUFFIX not in names]
        self.ignored = tuple(one for one in found if one.rule is not None)
        self.mutes = tuple(_with_ends(one for one in found if one.rule is None))
        self.errors = tuple(errors)

    def _read(self, name: str, errors: list[str]) -> None:
        try:
            if text := self._files.read(name):
                self.files[name] = _Silence.model_validate_json(text)
        except WarehouseError as error:
            errors.append(str(error))
        except ValidationError:
            errors.append(f"{self._files.directory / name} is not a mute that this release can read")


def _with_ends(mutes: Iterable[Mute]) -> Iterator[Mute]:
    """Yield the mutes, each of which ends at the latest when the next one with its pattern begins, or has ended."""
    ends: dict[str, datetime] = {}
    for mute in sorted(mutes, key=lambda one: one.starts_at, reverse=True):
        ends_at = min(mute.ends_at, ends.get(mute.pattern.pattern, mute.ends_at))
        ends[mute.pattern.pattern] = min(mute.starts_at, ends_at)
        yield mute.model_copy(update={"ends_at": ends_at})


class ActiveMutes:
    """The mutes that keep alerts of one cluster from being sent now, for the job."""

    def __init__(
        self,
        warehouse: Location | Path,
        cluster: str,
        report: Report = lambda _line: None,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        times_of: Callable[[str], Sequence[TimeInterval]] | None = None,
    ) -> None:
        """`report` gets a line, once, for each file that mutes nothing: the alerts are then sent.

        `times_of` returns the `mute_times` of a group; None: the configuration has none.
        """
        self._reader = MuteReader(warehouse, cluster)
        self._report_error, self._now, self._times_of = ReportOnce(report, _REPORTED_FILES), now, times_of
        self.active: tuple[Mute, ...] = ()
        """Those of the last `refresh`, the first to end first."""

    def refresh(self) -> bool:
        """Read new mutes, and return whether any may be active."""
        self._reader.refresh()
        now = self._now()
        self.active = tuple(
            sorted((one for one in self._reader.mutes if one.is_active(now)), key=lambda one: one.ends_at)
        )
        for error in self._reader.errors:
            self._report_error(f"mutes: {error}")
        for one in self._reader.ignored:
            if now < one.ends_at:
                what = f"the silence of {one.rule} for {one.pattern.pattern} does nothing"
                self._report_error(f"mutes: {what}: `streams-groups alerts mute` is for every rule")
        return bool(self.active) or self._times_of is not None

    def find(self, alert: Problem) -> Mute | None:
        """Return the active mute of an alert that ends last, as of the last `refresh`; None if it has none."""
        found = next((one for one in reversed(self.active) if one.matches(alert)), None)
        return found or self._by_time(alert)

    def _by_time(self, alert: Problem) -> Mute | None:
        """Return the mute that the configuration has for this time of the day, or week."""
        times = self._times_of(alert.group_id) if self._times_of and alert.group_id is not None else ()
        now = self._now()
        if not times or not contain(times, now):
            return None
        longest = now + timedelta(seconds=MAX_SECONDS)
        ends_at = min(next_change(times, now) or longest, longest)
        reason, by = "its mute_times", "the configuration"
        return Mute(pattern=_ANY, starts_at=now, ends_at=ends_at, reason=reason, created_by=by)

    def is_muted(self, alert: Problem) -> bool:
        """Return whether an alert is muted, as of the last `refresh`."""
        return self.find(alert) is not None

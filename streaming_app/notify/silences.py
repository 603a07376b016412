"""Silences: operators keep alerts of some groups from being sent for a while. The rules and the table go on meanwhile.

A silence is a request to the job, see `tables.request_files`. One that is ended early gets a second file, `ID.expired`,
which holds the time.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import zip_longest
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from streaming_app.alerts.alert import Alert
from streaming_app.errors import WarehouseError
from streaming_app.regex import Regex
from streaming_app.report import Report, ReportOnce
from streaming_app.section import Pattern
from streaming_app.tables.location import Location
from streaming_app.tables.reader import open_table
from streaming_app.tables.request_files import RequestFiles
from streaming_app.text import format_duration, parse_duration, utc
from streaming_app.time_intervals import TimeInterval, changes, contain, next_change

MAX_SECONDS = 30 * 86_400.0
_MAX_COMMENT, _MAX_REGEX = 500, 1_000  # characters
_KEPT = timedelta(days=30)  # after its end, for `silence list --all`
_CLOCK_DIFFERENCE = timedelta(minutes=5)  # between the machines of the command and the job
_REPORTED_FILES = 1_000  # that cannot be read, of which each is reported once
_AHEAD = timedelta(days=365)  # when a silence may begin
_CONFIGURATION = "the configuration"
_CHANGES, _AT_ONCE = 1_000, timedelta(days=8)  # of a recurring silence, over a time
_KIND = "silences"
_SUFFIX, _EXPIRED_SUFFIX = ".json", ".expired"
_ID = re.compile(r"[0-9a-f]{8}")


class Silence(BaseModel):
    """One silence."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    id: str = Field(pattern=_ID.pattern)
    group: Pattern
    """The whole id of a group must match it."""
    rule: str | None = None
    """Only alerts of this rule; None: of every rule about groups."""
    starts_at: AwareDatetime
    ends_at: AwareDatetime
    comment: str = Field(max_length=_MAX_COMMENT)
    created_by: str
    is_planned: bool = False
    """It was to start later than it was added: it starts by the clock of the job."""

    def is_active(self, now: datetime) -> bool:
        """Return whether it has started and not ended."""
        return self.starts_at - (timedelta() if self.is_planned else _CLOCK_DIFFERENCE) <= now < self.ends_at

    def matches(self, alert: Alert) -> bool:
        """Return whether the alert is silenced while the silence is active.

        An alert about the job or the cluster has no group: it is silenced only by a silence of its rule.
        """
        if self.rule is not None and self.rule != alert.rule:
            return False
        if alert.group_id is None:
            return self.rule is not None
        return self.group.matches(alert.group_id)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if timedelta(seconds=MAX_SECONDS) < self.ends_at - self.starts_at:
            raise ValueError(f"a silence may last {format_duration(MAX_SECONDS)} at most")
        return self


def new_silence(  # noqa: PLR0913 - what a silence consists of
    *,
    group: str,
    rule: str | None,
    duration: str,
    comment: str,
    created_by: str,
    now: datetime,
    starts_at: datetime | None = None,
) -> Silence:
    """Return a silence that starts now, or then. Raises ValueError, with one line for the user, if it must not be."""
    begin = starts_at or now
    if begin < now:
        raise ValueError("--starts-at must not be in the past; without it, a silence starts now")
    if begin - now > _AHEAD:
        raise ValueError(f"--starts-at must be at most {format_duration(_AHEAD.total_seconds())} ahead")
    try:
        seconds = parse_duration(duration, MAX_SECONDS)
    except ValueError as error:
        raise ValueError(f"--for {error}") from None
    if not seconds:
        raise ValueError("--for must be more than 0s")
    if len(group) > _MAX_REGEX:
        raise ValueError(f"--group must have at most {_MAX_REGEX:,} characters")
    try:
        regex = Regex(group)
    except ValueError as error:
        raise ValueError(f"--group {error}") from None
    if not comment.strip() or len(comment) > _MAX_COMMENT:
        raise ValueError(f"--comment must say why, in at most {_MAX_COMMENT} characters")
    return Silence(
        id=secrets.token_hex(4),
        group=regex,
        rule=rule,
        starts_at=begin,
        ends_at=begin + timedelta(seconds=seconds),
        is_planned=begin > now,
        comment=" ".join(comment.split()),
        created_by=created_by,
    )


@dataclass(frozen=True)
class RecurringSilence:
    """A silence of the configuration, at times that recur."""

    id: str
    group: Regex
    rule: str | None
    mute: Sequence[TimeInterval]
    active: Sequence[TimeInterval]
    """Alerts are sent at these times only; empty: at all others."""
    comment: str

    def is_active(self, now: datetime) -> bool:
        """Return whether alerts are silenced now."""
        return contain(self.mute, now) or (bool(self.active) and not contain(self.active, now))

    def at(self, now: datetime) -> Silence | None:
        """Return the silence that is active now, until it ends; None if none is."""
        if not self.is_active(now):
            return None
        ends_at = next_change(self._intervals, now, self.is_active) or now + timedelta(seconds=MAX_SECONDS)
        return self._during(now, ends_at)

    def between(self, begin: datetime, end: datetime) -> Iterator[Silence]:
        """Yield the silences of this time, the first one first; of many, the last ones."""
        first, found = end, list[datetime]()
        while first > begin and len(found) < _CHANGES:
            last, first = first, max(begin, first - _AT_ONCE)
            found[:0] = changes(self._intervals, first, last, self.is_active)
        times, place = [first, *found], 0 if self.is_active(first) else 1
        for starts_at, ends_at in zip_longest(times[place::2], times[place + 1 :: 2]):
            if ends_at is not None:
                yield self._during(starts_at, ends_at)
            elif newest := self.at(end):
                yield self._during(starts_at, newest.ends_at)

    @property
    def _intervals(self) -> Sequence[TimeInterval]:
        return (*self.mute, *self.active)

    def _during(self, starts_at: datetime, ends_at: datetime) -> Silence:
        return Silence.model_construct(
            id=self.id,
            group=self.group,
            rule=self.rule,
            starts_at=starts_at,
            ends_at=ends_at,
            comment=self.comment,
            created_by=_CONFIGURATION,
            is_planned=True,
        )


class SilenceStore:
    """The silences of one cluster. Every method raises WarehouseError when the files cannot be read or written."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._warehouse, self._cluster = Location.of(warehouse), cluster
        self._files = RequestFiles(warehouse, cluster, _KIND)

    def add(self, silence: Silence) -> None:
        """Write a silence; the job finds it at its next evaluation. Files of silences that ended long ago are removed.

        Raises WarehouseError also if there is no warehouse.
        """
        open_table(self._warehouse / "groups")
        for old in self.all():
            if old.ends_at + _KEPT < silence.starts_at:
                for suffix in (_EXPIRED_SUFFIX, _SUFFIX):
                    self._files.remove(f"{old.id}{suffix}")
        self._files.write(f"{silence.id}{_SUFFIX}", silence.model_dump_json(indent=2) + "\n")

    def all(self) -> list[Silence]:
        """Return the silences, also those that ended in the last 30 days, the first to end first."""
        reader = SilenceReader(self._warehouse, self._cluster)
        reader.refresh()
        if reader.errors:
            raise WarehouseError(reader.errors[0])
        return sorted(reader.silences, key=lambda one: (one.ends_at, one.id))

    def expire(self, silence_id: str, now: datetime) -> Silence:
        """End an active silence now, and return it as it was. Raises WarehouseError also if there is none."""
        found = next((one for one in self.all() if one.id == silence_id), None)
        if found is None:
            raise WarehouseError(f"No silence {silence_id!r}: `streams-groups silence list` shows all")
        if now >= found.ends_at:
            raise WarehouseError(f"Silence {silence_id} has ended already, at {utc(found.ends_at)}")
        self._files.write(f"{silence_id}{_EXPIRED_SUFFIX}", now.isoformat() + "\n")
        return found


class SilenceReader:
    """Reads the silences of a cluster, each once; `silences` are those of the last `refresh`."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._files = RequestFiles(warehouse, cluster, _KIND)
        self._read: dict[str, Silence] = {}
        self.silences: tuple[Silence, ...] = ()
        self.errors: tuple[str, ...] = ()
        """A line for each file that could not be read; its silence, if it is one, does not count."""

    def refresh(self) -> None:
        """Read new files, if that is due. When the directory cannot be read, the silences stay as they were."""
        try:
            names = self._files.names()
        except WarehouseError as error:
            self.errors = (str(error),)
            return
        if names is None:
            return
        errors: list[str] = []
        found = {}
        for name in sorted(name for name in names if name.endswith(_SUFFIX)):
            if silence := self._find(name, names, errors):
                found[name] = silence
        self.silences, self.errors = tuple(found.values()), tuple(errors)

    def _find(self, name: str, names: Iterable[str], errors: list[str]) -> Silence | None:
        expired = name.removesuffix(_SUFFIX) + _EXPIRED_SUFFIX
        known_as = expired if expired in names else name
        if known_as not in self._read:
            try:
                text = self._files.read(known_as)
                if text is None:
                    return None
                if known_as == name:
                    self._read[name] = Silence.model_validate_json(text)
                elif before := self._find(name, (), errors):
                    ended = datetime.fromisoformat(text.strip())
                    self._read[expired] = before.model_copy(update={"ends_at": min(ended, before.ends_at)})
            except WarehouseError as error:
                errors.append(str(error))
            except (ValidationError, ValueError):
                errors.append(f"{self._files.directory / known_as} is not a silence that this release can read")
        return self._read.get(known_as)


class ActiveSilences:
    """The silences that keep alerts of one cluster from being sent now, for the job."""

    def __init__(
        self,
        warehouse: Location | Path,
        cluster: str,
        report: Report = lambda _line: None,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        recurring: Sequence[RecurringSilence] = (),
    ) -> None:
        """`report` gets a line, once, for each file that cannot be read: the alerts are then sent.

        `recurring` are the silences of the configuration.
        """
        self._recurring = recurring
        self._reader = SilenceReader(warehouse, cluster)
        self._report_error, self._now = ReportOnce(report, _REPORTED_FILES), now
        self._active: tuple[Silence, ...] = ()

    def refresh(self) -> bool:
        """Read new silences, and return whether any is active."""
        self._reader.refresh()
        now = self._now()
        planned = [one.at(now) for one in self._recurring]
        self._active = tuple(one for one in (*self._reader.silences, *planned) if one and one.is_active(now))
        for error in self._reader.errors:
            self._report_error(f"silences: {error}")
        return bool(self._active)

    def find(self, alert: Alert) -> Silence | None:
        """Return the active silence of an alert that ends last, as of the last `refresh`; None if it has none."""
        return max((one for one in self._active if one.matches(alert)), key=lambda one: one.ends_at, default=None)

    def is_silenced(self, alert: Alert) -> bool:
        """Return whether an alert is silenced, as of the last `refresh`."""
        return self.find(alert) is not None

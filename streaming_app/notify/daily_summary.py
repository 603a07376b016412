"""The daily summary: what a sink for people says once a day, whether anything fires or not, and when it is due.

A file next to the tables holds for each sink the time of day that was served last. So a job that was down at that time
sends the summary when it is up again, a restart repeats none, and `run --once` from cron sends it, too. A sink that is
new in the configuration gets its first summary at the next such time.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta, timezone
from functools import partial
from typing import Annotated, Any, Protocol

from pydantic import BeforeValidator, PlainSerializer

from streaming_app.alerts.alert import FIRING, Alert, severity_rank
from streaming_app.health.verdict import BAD, UNKNOWN, WORST_FIRST, Verdict
from streaming_app.notify.message import format_summary
from streaming_app.text import and_more, count, utc_iso

_DAY = timedelta(days=1)
_DAY_MINUTES = 24 * 60
_NAMED = 20


def _to_time(given: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return a time of day. YAML reads 18:00 without quotes as the number 1080, but 08:00 as text."""
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < _DAY_MINUTES:
        return time(given // 60, given % 60)
    if isinstance(given, time):
        return given
    hours, colon, minutes = str(given).partition(":")
    try:
        if colon and len(minutes) == 2:  # noqa: PLR2004 - HH:MM
            return time(int(hours), int(minutes))
    except ValueError:
        pass
    raise ValueError(f'must be a time of day in UTC such as "08:00", not "{given}"')


TimeOfDay = Annotated[time, BeforeValidator(_to_time), PlainSerializer(lambda at: f"{at:%H:%M}", return_type=str)]
"""A time in UTC, as `"08:00"`."""


# --- What is in it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DailySummary:
    """The groups and alerts of a cluster at one time, and the alerts of the 24 hours before."""

    cluster: str
    at: datetime
    groups: Mapping[str, int]
    """Number of groups by verdict, the worst first; of those that were deleted, the ones that were Down then."""
    firing: Sequence[Alert]
    silenced: int
    """How many of `firing` are silenced."""
    fired: Mapping[str, int] = field(default_factory=dict)
    """How many alerts fired in the 24 hours before, by rule."""
    resolved: int = 0
    """How many alerts were resolved in the 24 hours before."""


def make_summary(  # noqa: PLR0913, PLR0917 - what is in it
    cluster: str,
    now: datetime,
    group_ids: Iterable[str],
    verdicts: Mapping[str, Verdict],
    alerts: Iterable[Alert],
    is_silenced: Callable[[Alert], bool],
) -> DailySummary:
    """Return the summary of these groups and alerts; `alerts` are the open ones, and those resolved in the last day.

    A group without a verdict is Unknown; one that was deleted counts while its verdict is bad.
    """
    bad = (group_id for group_id, one in verdicts.items() if one.verdict in BAD)
    judged = (verdicts.get(group_id) for group_id in dict.fromkeys((*group_ids, *bad)))
    by_verdict = Counter(one.verdict if one else UNKNOWN for one in judged)
    known = list(alerts)
    firing = [alert for alert in known if alert.state == FIRING]
    firing.sort(key=lambda alert: (severity_rank(alert.severity), alert.opened_at or now))
    return DailySummary(
        cluster,
        now,
        {name: by_verdict[name] for name in WORST_FIRST if by_verdict[name]},
        firing,
        sum(map(is_silenced, firing)),
        Counter(alert.rule for alert in known if alert.opened_at and now - alert.opened_at < _DAY),
        sum(1 for alert in known if alert.resolved_at and now - alert.resolved_at < _DAY),
    )


def format_summary_title(summary: DailySummary) -> str:
    """Return the title in one line: `[SUMMARY] 2 alerts fire, 120 groups (cluster default)`."""
    alerts = count(len(summary.firing), "alert fires", "alerts fire")
    groups = count(sum(summary.groups.values()), "group")
    return f"[SUMMARY] {alerts}, {groups} (cluster {summary.cluster})"


def format_summary_text(summary: DailySummary) -> str:
    """Return the whole summary in a few lines."""
    return "\n".join(_lines(summary))


def _lines(summary: DailySummary) -> Iterator[str]:
    yield f"groups: {', '.join(f'{number:,} {verdict}' for verdict, number in summary.groups.items()) or 'none'}"
    silenced = f", {summary.silenced:,} of them silenced" if summary.silenced else ""
    yield f"firing: {len(summary.firing):,}{silenced}"
    for alert in summary.firing[:_NAMED]:
        yield f"- {alert.severity} {alert.rule}: {format_summary(alert)}"
    if more := and_more(len(summary.firing) - _NAMED):
        yield more.strip()
    fired = ", ".join(f"{number:,} {rule}" for rule, number in sorted(summary.fired.items()))
    yield f"fired in the last 24 hours: {fired or 'none'}"
    yield f"resolved in the last 24 hours: {summary.resolved:,}"
    yield f"as of: {utc_iso(summary.at)}"


# --- When it is due ---------------------------------------------------------------------------------------------------


class RecordFile(Protocol):
    """A small file. Both methods raise OSError or JobError."""

    def read(self) -> str | None:
        """Return its text; None if there is none."""

    def write(self, text: str) -> None:
        """Replace its text."""


Send = Callable[[str, DailySummary, Callable[[], None]], None]
"""Sends a summary to the sink of this name, and calls the function once it is sent."""


class DailySummaries:
    """Sends each sink its summary once a day. `send_due` is called by one thread, at each evaluation."""

    def __init__(
        self,
        times: Mapping[str, time],
        record: RecordFile,
        make: Callable[[datetime], DailySummary],
        send: Send,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        """`times` has the time of day, in UTC, of each sink that gets a summary."""
        self._times, self._record, self._make, self._send, self._now = times, record, make, send, now
        self._lock = threading.Lock()  # the sinks' threads report what is sent
        self._done: dict[str, datetime] | None = None
        self._offered: dict[str, datetime] = {}

    def send_due(self) -> None:
        """Send the summaries that are due. Raises OSError or JobError when the file cannot be read or written."""
        if not self._times:
            return
        now = self._now()
        done = self._read()
        due_at = {sink: _latest(at, now) for sink, at in self._times.items()}
        if new := {sink: at for sink, at in due_at.items() if sink not in done}:
            self._add_done(new)
        due = [
            sink
            for sink, at in due_at.items()
            if sink in done and max(done[sink], self._offered.get(sink, done[sink])) < at
        ]
        if due:
            summary = self._make(now)
            for sink in due:
                self._offered[sink] = due_at[sink]
                self._send(sink, summary, partial(self._add_done, {sink: due_at[sink]}))

    def _read(self) -> Mapping[str, datetime]:
        with self._lock:
            if self._done is None:
                self._done = _parse(self._record.read())
            return dict(self._done)

    def _add_done(self, times: Mapping[str, datetime]) -> None:
        with self._lock:
            self._done = {**(self._done or {}), **times}
            self._record.write(json.dumps({sink: at.isoformat() for sink, at in self._done.items()}))


def _latest(at: time, now: datetime) -> datetime:
    """Return the latest time, not after `now`, at which the clock showed `at`."""
    today = datetime.combine(now.astimezone(timezone.utc).date(), at, timezone.utc)
    return today if today <= now else today - _DAY


def _parse(text: str | None) -> dict[str, datetime]:
    """Return the times in the file; none from a file that something else wrote: the summaries then start again."""
    try:
        return {str(sink): datetime.fromisoformat(at) for sink, at in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}

"""The state of the job: the stream updates it; alerts, metrics and `status` read it. One object for all threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from streaming_app import job_status
from streaming_app.job_status import JobStatus, StreamStatus, UnknownType
from streaming_app.stream.source import KNOWN_TYPES
from streaming_app.text import EPOCH, first_of

if TYPE_CHECKING:
    from streaming_app.stream.log_positions import Cut


@dataclass(frozen=True)
class Totals:
    """Totals since the job started."""

    batches: int = 0
    records_seen: int = 0
    """Records of every type that Spark read."""
    records_by_type: Mapping[int, int] = field(default_factory=dict)
    """Records that left the JVM, by record type: those that the fold reads, and those of unknown types."""
    quarantined: int = 0
    drifted: int = 0
    batch_seconds_sum: float = 0.0
    behind: Mapping[int, int] = field(default_factory=dict)
    """Unread offsets, by partition of the topic; empty before the first batch."""


@dataclass(frozen=True)
class CommittedBatch:
    """A batch whose rows are in the tables; the fields are as in `Totals`. Its writer does not know all of them."""

    seen: int = 0
    seconds: float = 0.0
    by_type: Mapping[int, int] = field(default_factory=dict)
    """Type -1: records without a key."""
    quarantined: int = 0
    drifted: int = 0
    """Records with unknown tagged fields; for committed offsets, only the newest record of each key counts."""
    unknown: Mapping[int, int] = field(default_factory=dict)
    """Numbers of records by record type, of the types that this release does not know."""
    behind: Mapping[int, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    """Numbers of written rows, in the words and the order of the batch's log line."""
    ends: Mapping[int, int] | None = None
    """Up to where it has read, by partition; None: not known."""


_DAY = timedelta(days=1)
_SLOW_SECONDS = 60.0  # records that arrive during a longer batch are read late, although the batch read to the end


class JobState:
    """The threads of the stream update it, others read it; every property is a snapshot."""

    def __init__(self, offsets: JobState | None = None) -> None:
        """Start; `offsets` is the state of the query of committed offsets, which the properties include."""
        self.offsets = offsets
        self._lock = threading.RLock()
        self._status = JobStatus(started_at=_now())
        self._totals = Totals()
        self._cuts: dict[str, datetime] = {}  # by cut, when it was found
        self._tombstone_retention: timedelta | None = None
        self.was_away_too_long = False
        """Whether the running stream was behind the end of the topic for so long that tombstones may be gone."""
        self.is_reading = False
        """Whether the stream has started; false while a start is prepared."""

    @property
    def status(self) -> JobStatus:
        """The status that the alert rules evaluate. The undecodable records of both queries are added."""
        status = self._status
        if self.offsets is None:
            return status
        offsets = self.offsets.status
        newest = max((status, offsets), key=lambda one: one.truncated_at or EPOCH)
        return replace(
            status,
            truncated_at=newest.truncated_at,
            truncated=newest.truncated,
            quarantined=status.quarantined + offsets.quarantined,
            quarantined_at=max(filter(None, (status.quarantined_at, offsets.quarantined_at)), default=None),
            offsets=StreamStatus(**{one.name: getattr(offsets, one.name) for one in fields(StreamStatus)}),
        )

    @property
    def totals(self) -> Totals:
        """The totals that the metrics show."""
        totals = self._totals
        if self.offsets is None:
            return totals
        more = self.offsets.totals
        return replace(totals, quarantined=totals.quarantined + more.quarantined, drifted=totals.drifted + more.drifted)

    def time_away(self) -> timedelta | None:
        """Return for how long the job has not been at the end of the topic; None if that is not known."""
        return job_status.time_away(self.status, _now())

    def restore(self, earlier: StreamStatus) -> None:
        """Take over the status of an earlier run."""
        with self._lock:
            self.note(caught_up_at=earlier.caught_up_at, read_from_beginning_at=earlier.read_from_beginning_at)
            if isinstance(earlier, JobStatus) and earlier.truncated and earlier.truncated_at:
                self._cuts[earlier.truncated] = earlier.truncated_at
                self.note(truncated_at=earlier.truncated_at, truncated=earlier.truncated)
            if isinstance(earlier, JobStatus):  # an upgrade may have made some of them known
                kept = {kind: seen for kind, seen in earlier.unknown_types.items() if kind not in KNOWN_TYPES}
                self.note(unknown_types=kept)

    def started_reading(
        self, *, from_beginning: bool, tombstone_retention: timedelta, is_incomplete: bool = False
    ) -> None:
        """Record that the stream is about to read.

        If it reads from the beginning, the rows are incomplete until the end of the topic, so the job has not caught
        up. The same is true if it reads some partitions from the beginning (`is_incomplete`).
        """
        with self._lock:
            self._tombstone_retention, self.was_away_too_long = tombstone_retention, False
            self.is_reading = True
            if from_beginning:
                self.note(caught_up=False, read_from_beginning_at=_now(), behind_since=None)
            elif is_incomplete:
                self.note(caught_up=False)

    def note(self, **status: Any) -> None:  # noqa: ANN401 - fields of the status
        """Record what is known now: fields of the status."""
        with self._lock:
            self._status = replace(self._status, **status)

    def batch_done(
        self, batch: CommittedBatch, began_at: datetime | None = None, ended_at: datetime | None = None
    ) -> None:
        """Record a committed batch that read up to the end of the topic at `began_at`. Both times default to now."""
        now, left = ended_at or _now(), sum(batch.behind.values())
        with self._lock:
            totals, status = self._totals, self._status
            is_behind = any(batch.behind.values()) or batch.seconds >= _SLOW_SECONDS
            self._totals = replace(
                totals,
                batches=totals.batches + 1,
                records_seen=totals.records_seen + batch.seen,
                records_by_type=Counter(totals.records_by_type) + Counter(batch.by_type),
                quarantined=totals.quarantined + batch.quarantined,
                drifted=totals.drifted + batch.drifted,
                batch_seconds_sum=totals.batch_seconds_sum + batch.seconds,
                behind=dict(batch.behind),
            )
            self.note(
                caught_up=status.caught_up or not left,
                caught_up_at=status.caught_up_at if left else self._end_of_topic(began_at or now, read_by=now),
                behind=left,
                behind_since=status.behind_since or now - timedelta(seconds=batch.seconds) if is_behind else None,
                last_success_at=now,
                failing_since=None,
                failure=None,
                quarantined_at=now if batch.quarantined else status.quarantined_at,
                quarantined=status.quarantined + batch.quarantined,
                unknown_types={**status.unknown_types, **_counted(status.unknown_types, batch.unknown, now)},
            )

    def nothing_new(self, at: datetime | None = None, seen_at: datetime | None = None) -> None:
        """Record that at `at` there was nothing to read, as was seen at `seen_at`. Both default to now."""
        now = seen_at or _now()
        with self._lock:
            self._totals = replace(self._totals, behind=dict.fromkeys(self._totals.behind, 0))
            self.note(
                caught_up=True,
                caught_up_at=self._end_of_topic(at or now, read_by=at or now),
                behind=0,
                behind_since=None,
                last_success_at=now,
                failing_since=None,
                failure=None,
            )

    def failed(self, cause: str) -> None:
        """Record that the stream failed and will be started again."""
        with self._lock:
            self.note(failing_since=self._status.failing_since or _now(), failure=cause)

    def topic_asked(self, *, is_answered: bool, exists: bool) -> None:
        """Record whether the brokers answer, and have the topic."""
        with self._lock:
            away = None if is_answered else self._status.brokers_away_since or _now()
            missing = None if exists else self._status.topic_missing_since or _now()
            self.note(brokers_away_since=away, topic_missing_since=missing)

    def lag_pass(self, failure: str | None, log_ends_at: Mapping[str, datetime] | None = None) -> None:
        """Record that a lag pass succeeded, and when each broker last answered; or why it failed."""
        with self._lock:
            since = None if failure is None else self._status.lag_failing_since or _now()
            known = self._status.log_ends_at if log_ends_at is None else log_ends_at
            self.note(lag_failing_since=since, lag_failure=failure, log_ends_at=known)

    def log_cut(self, cut: Cut) -> None:
        """Record that an unclean election cut the log below the offsets that were read."""
        at = datetime.fromisoformat(cut.found_at)
        with self._lock:
            self._cuts[str(cut)] = at
            recent = [text for text, found_at in self._cuts.items() if at - found_at < _DAY]
            self.note(truncated_at=at, truncated=first_of(recent[::-1], 10, separator="; "))

    def maintenance_failed(self) -> None:
        """Count a maintenance task that failed."""
        with self._lock:
            self.note(maintenance_failures=self._status.maintenance_failures + 1)

    def quarantined_before(self, count: int, at: datetime | None) -> None:
        """Record the number of records that were quarantined in the 24 hours before this start."""
        with self._lock:
            at = self._status.quarantined_at or at
            self.note(quarantined=self._status.quarantined + count, quarantined_at=at)

    def _end_of_topic(self, at: datetime, read_by: datetime) -> datetime | None:
        """Return when the job was last at the end of the topic, after it has read up to the end as of `at`.

        It read the records until `read_by`; brokers may have removed tombstones until then. Needs the lock.
        """
        retention = self._tombstone_retention
        if retention is not None and job_status.is_gap_too_long(self._status, read_by, retention):
            self.was_away_too_long = True
            return self._status.caught_up_at
        return at


def _counted(known: Mapping[int, UnknownType], new: Mapping[int, int], at: datetime) -> dict[int, UnknownType]:
    before = {kind: known.get(kind, UnknownType(0, at, at)) for kind in new}
    return {kind: UnknownType(one.records + new[kind], one.since, at) for kind, one in before.items()}


def _now() -> datetime:
    return datetime.now(timezone.utc)

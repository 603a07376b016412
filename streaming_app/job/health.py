"""How the job is doing, told by the stream and asked by alerts, metrics and `status`: one object for all threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from streaming_app.core.facts import JobFacts


@dataclass(frozen=True)
class Counted:
    """Totals since the job started, and the newest batch."""

    batches: int = 0
    records_seen: int = 0
    """Records of every kind that Spark read."""
    records_by_type: Mapping[int, int] = field(default_factory=dict)
    """Records of groups, by record type (record 2, 17 to 23, and unknown ones); offset commits are not looked at."""
    quarantined: int = 0
    drifted: int = 0
    batch_seconds_sum: float = 0.0
    last_batch_seconds: float = 0.0
    behind: Mapping[int, int] = field(default_factory=dict)
    """Offsets still to be read, by partition of the topic; empty before the first batch."""
    restarts: int = 0
    """How often a failed stream was started again."""


@dataclass(frozen=True)
class Batch:
    """A batch that ended well; the fields are as in `Counted`."""

    seen: int
    seconds: float
    by_type: Mapping[int, int]
    quarantined: int
    drifted: int
    behind: Mapping[int, int]


_SLOW_SECONDS = 60.0  # what came during a longer batch is late, although the batch took all it had set out to


class Health:
    """Told from the stream's threads, asked from others; every answer is a snapshot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts = JobFacts(started_at=_now())
        self._counted = Counted()

    @property
    def facts(self) -> JobFacts:
        """What the rules look at."""
        with self._lock:
            return self._facts

    @property
    def counted(self) -> Counted:
        """What the metrics show."""
        with self._lock:
            return self._counted

    def batch_done(self, batch: Batch) -> None:
        """A batch ended well."""
        now, left = _now(), sum(batch.behind.values())
        with self._lock:
            counted, facts = self._counted, self._facts
            self._counted = replace(
                counted,
                batches=counted.batches + 1,
                records_seen=counted.records_seen + batch.seen,
                records_by_type=Counter(counted.records_by_type) + Counter(batch.by_type),
                quarantined=counted.quarantined + batch.quarantined,
                drifted=counted.drifted + batch.drifted,
                batch_seconds_sum=counted.batch_seconds_sum + batch.seconds,
                last_batch_seconds=batch.seconds,
                behind=dict(batch.behind),
            )
            self._facts = replace(
                facts,
                caught_up=facts.caught_up or not left,
                behind=left,
                behind_since=_behind_since(facts, batch, now),
                last_success_at=now,
                failing_since=None,
                failure=None,
                quarantined_at=now if batch.quarantined else facts.quarantined_at,
                quarantined=facts.quarantined + batch.quarantined,
                drifted_at=now if batch.drifted else facts.drifted_at,
                drifted=facts.drifted + batch.drifted,
            )

    def nothing_new(self) -> None:
        """The stream looked and found nothing to read."""
        with self._lock:
            self._counted = replace(self._counted, behind=dict.fromkeys(self._counted.behind, 0))
            self._facts = replace(
                self._facts,
                caught_up=True,
                behind=0,
                behind_since=None,
                last_success_at=_now(),
                failing_since=None,
                failure=None,
            )

    def failed(self, cause: str) -> None:
        """The stream failed and will be started again."""
        with self._lock:
            self._counted = replace(self._counted, restarts=self._counted.restarts + 1)
            self._facts = replace(self._facts, failing_since=self._facts.failing_since or _now(), failure=cause)

    def brokers(self, *, answer: bool) -> None:
        """The brokers answer, or do not."""
        with self._lock:
            since = None if answer else self._facts.brokers_away_since or _now()
            self._facts = replace(self._facts, brokers_away_since=since)

    def quarantined_before(self, count: int, at: datetime | None) -> None:
        """What the quarantine held of the 24 hours before this start."""
        with self._lock:
            facts = self._facts
            at = facts.quarantined_at or at
            self._facts = replace(facts, quarantined=facts.quarantined + count, quarantined_at=at)


def _behind_since(facts: JobFacts, batch: Batch, now: datetime) -> datetime | None:
    if not any(batch.behind.values()) and batch.seconds < _SLOW_SECONDS:
        return None
    return facts.behind_since or now - timedelta(seconds=batch.seconds)


def _now() -> datetime:
    return datetime.now(timezone.utc)

"""The status of the job that writes one cluster: reported by the stream, read by alerts, metrics and commands.

Only data. No clock: the job sets the times.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SelfCheckStatus:
    """The comparisons of its tables with the brokers that the job made since it started."""

    runs: int = 0
    """Comparisons of all groups, including those that could not be completed."""
    failures: int = 0
    """Comparisons that could not be completed."""
    last_run_at: datetime | None = None
    """When the last one was completed."""
    failed_at: datetime | None = None
    """When the last one could not be completed; None after one that was."""
    failure: str | None = None
    """Why, in one line."""
    compared: int = 0
    """Groups that the last completed one compared."""
    not_compared: int = 0
    """Groups that it could not compare, such as those that changed all the time."""
    differing: int = 0
    """Groups with a difference that lasts, as of the last comparison."""
    repaired: int = 0
    """Rows of groups that were replaced since the start."""


@dataclass(frozen=True, slots=True)
class DifferingGroup:
    """A group of which the job found that its row differs from what the broker describes, and that this lasts."""

    group_id: str
    since: datetime
    """When the difference was confirmed."""
    field_count: int
    """How many fields differed."""
    fields: tuple[tuple[str, str], ...]
    """The first of these, by name, with the values of both sides as text."""
    repair: str | None = None
    """What came of reading the group's records again; None before that."""
    agreed_at: datetime | None = None
    """When a later comparison found no difference; None while there is one."""


@dataclass(frozen=True, slots=True)
class OffsetsStatus:
    """The status of the stream of committed offsets and of groups of every type; its fields are as in `JobStatus`."""

    caught_up: bool = False
    caught_up_at: datetime | None = None
    read_from_beginning_at: datetime | None = None
    behind: int = 0
    behind_since: datetime | None = None
    last_success_at: datetime | None = None
    failing_since: datetime | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of the job that writes one cluster; times are those of the machine that it runs on."""

    started_at: datetime
    caught_up: bool = False
    """The job has reached the end of the topic since it started. No alert about a group fires before that."""
    caught_up_at: datetime | None = None
    """When the job was last at the end of the topic; an earlier run counts, too. It stays as it is after the job was
    away for too long, see `stream.absence`, until the job has read the topic from the beginning."""
    read_from_beginning_at: datetime | None = None
    """When the job last began to read the topic from the beginning; an earlier run counts, too."""
    behind: int = 0
    """Offsets of the topic that are not in the tables yet."""
    behind_since: datetime | None = None
    """Since when the job has been behind all the time, or batches took minutes; None at the end of the topic."""
    last_success_at: datetime | None = None
    """When a batch last succeeded, or the stream last found no new records."""
    brokers_away_since: datetime | None = None
    """Since when no broker has responded; None while one does."""
    topic_missing_since: datetime | None = None
    """Since when the brokers have had no such topic; None while they have it."""
    progress_at: datetime | None = None
    """When Spark last made progress with a batch that is not complete yet."""
    failing_since: datetime | None = None
    """Since when the stream has failed, and been restarted without success; None while it runs."""
    failure: str | None = None
    """The error that it failed with, in one line."""
    quarantined_at: datetime | None = None
    """When a record was last written to `quarantine`."""
    quarantined: int = 0
    """Records written to `quarantine` since the job started, and in the 24 hours before that."""
    drifted_at: datetime | None = None
    """When a record with unknown tagged fields was last read."""
    drifted: int = 0
    """Records with unknown tagged fields since the job started."""
    maintenance_failures: int = 0
    """Tasks of maintenance that failed since the job started; each is tried again."""
    self_check: SelfCheckStatus = SelfCheckStatus()
    offsets: OffsetsStatus | None = None
    """None if `offsets.enabled` is false."""
    lag_failing_since: datetime | None = None
    """Since when no pass over the lag has succeeded; None after one that has, and before the first one."""
    lag_failure: str | None = None
    """Why, in one line."""

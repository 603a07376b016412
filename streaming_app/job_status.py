"""The status of the job that writes one cluster, and whether the job is live, ready or late, and why.

The stream updates it; alerts, metrics, probes and commands read it. Pure: the job sets the times, and callers pass the
current time.

Liveness is for a supervisor that would restart the job, readiness for readers of the tables. A job that no broker
answers, or whose topic does not exist yet, is live, because a restart would not help, but not ready. A batch may take
any time, as long as Spark makes progress with it: it would only be repeated after a restart.

How long the job has not been at the end of the topic decides where it reads on. Compaction keeps a tombstone for
`delete.retention.ms` and then removes it: a reader that was at the end of the topic at some time, and reads on within
that time, sees every tombstone. A reader that comes later may miss some. Members and groups that are gone would then
stay in the rows for ever, so the job has to read the topic from the beginning. A reader that began at the beginning
counts as one that was at the end at that time: what it does not see was compacted away before it read the records that
this concerns. So the time of the last end of the topic must not move forward across a gap that is too long. It stays
where it was until the job reads from the beginning, however often the job reaches the end of the topic or is restarted
meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.text import count, utc

GROUPS, COMMITS, LOG_ENDS, DESCRIPTIONS = "groups", "commits", "log ends of broker", "descriptions"
"""The inputs, see `inputs`."""
_MAX_BEHIND = timedelta(minutes=1)  # since the job was last at the end of the topic
_MAX_STANDSTILL = timedelta(minutes=15)  # without a batch that ends, or any progress of Spark with one
_CLOCK_SLACK = timedelta(minutes=5)  # a time that is later than now by more than this is from a wrong clock
# Between two ends of the topic in a running job: batches take seconds, whatever the topic's retention is.
_SHORTEST = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """The status of a stream; times are those of the machine that the job runs on."""

    caught_up: bool = False
    """The stream has reached the end of the topic since it started. No alert about a group fires before that."""
    caught_up_at: datetime | None = None
    """When the stream was last at the end of the topic; an earlier run counts, too. It stays as it is after the job was
    away for too long, see `is_gap_too_long`, until the stream has read the topic from the beginning."""
    read_from_beginning_at: datetime | None = None
    """When the stream last began to read the topic from the beginning; an earlier run counts, too."""
    behind: int = 0
    """Offsets of the topic that are not in the tables yet."""
    behind_since: datetime | None = None
    """Since when the stream has been behind all the time, or batches took minutes; None at the end of the topic."""
    last_success_at: datetime | None = None
    """When a batch last succeeded, or the stream last found no new records."""
    failing_since: datetime | None = None
    """Since when the stream has failed, and been restarted without success; None while it runs."""
    failure: str | None = None
    """The error that it failed with, in one line."""


@dataclass(frozen=True)
class SinkStatus:
    """The status of a sink; totals are since the start. Each alert counts, also where several are sent together."""

    name: str
    sent: int = 0
    failed: int = 0
    """Attempts that failed, including those to resend."""
    waiting: int = 0
    failing_since: datetime | None = None
    """Since when no attempt has succeeded; None after one that has, and before the first one."""
    failure: str | None = None
    """What the first attempt failed with since then, in one line."""


class DiskSpace(NamedTuple):
    """The disk of a directory that the job writes to, in bytes."""

    path: str
    free: int
    size: int
    low_since: datetime | None = None
    """Since when less than a tenth of it has been free, as far as the running job has seen."""


class UnknownType(NamedTuple):
    """Records of a type that this release does not know: how many were read, and when the first and the last."""

    records: int
    since: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class JobStatus(StreamStatus):
    """The status of the job that writes one cluster, and of its stream of streams groups."""

    started_at: datetime
    brokers_away_since: datetime | None = None
    topic_missing_since: datetime | None = None
    """Since when the brokers have had no such topic; None while they have it."""
    progress_at: datetime | None = None
    """When Spark last made progress with a batch that is not complete yet."""
    quarantined_at: datetime | None = None
    """When a record was last written to `quarantine`."""
    quarantined: int = 0
    """Records written to `quarantine` since the job started, and in the 24 hours before that; none of unknown types."""
    unknown_types: Mapping[int, UnknownType] = field(default_factory=dict)
    """By record type; earlier runs count, too."""
    truncated_at: datetime | None = None
    """When it was last found that the log no longer has records that were read."""
    truncated: str | None = None
    """Which ones: topic, partition and offsets."""
    maintenance_failures: int = 0
    """Tasks of maintenance that failed since the job started; each is tried again."""
    offsets: StreamStatus | None = None
    """The stream of committed offsets and of groups of every type; None if `offsets.enabled` is false."""
    log_ends_at: Mapping[str, datetime] = field(default_factory=dict)
    """By the id of a broker: when it last answered about the ends of the logs that it leads."""
    descriptions_at: datetime | None = None
    """When brokers last described the groups whose tasks have copies."""
    lag_failing_since: datetime | None = None
    """Since when no pass over the lag has succeeded; None after one that has, and before the first one."""
    lag_failure: str | None = None
    evaluated_at: datetime | None = None
    failing_sinks: Sequence[SinkStatus] = ()
    disks: Sequence[DiskSpace] = ()
    """Those of the warehouse and of the state directory, as far as they are local."""
    waits_for: str | None = None
    """Which job writes the cluster, while this one waits for its end."""


class Input(NamedTuple):
    """What answers are made of, and until when it is known: by the time of a batch, or of a broker's answer."""

    name: str
    at: datetime | None
    """None: not yet."""


def inputs(job: JobStatus) -> tuple[Input, ...]:
    """Return the inputs that this job has: both streams, the ends of the logs by broker, descriptions of groups."""
    commits = (Input(COMMITS, job.offsets.caught_up_at),) if job.offsets else ()
    ends = (Input(f"{LOG_ENDS} {broker}", at) for broker, at in sorted(job.log_ends_at.items()))
    descriptions = (Input(DESCRIPTIONS, job.descriptions_at),) if job.descriptions_at else ()
    return Input(GROUPS, job.caught_up_at), *commits, *ends, *descriptions


def inputs_of_lag(job: JobStatus, leaders: Iterable[int | None]) -> tuple[Input, ...]:
    """Return the inputs of the lag of partitions that these brokers lead, the oldest first."""
    names = {COMMITS, *(f"{LOG_ENDS} {broker}" for broker in leaders)}
    found = (one for one in inputs(job) if one.name in names)
    return tuple(sorted(found, key=lambda one: (one.at is not None, one.at)))


class ProbeResult(NamedTuple):
    """Success or failure of a probe, with the reason in one line."""

    ok: bool
    reason: str


def check_liveness(job: JobStatus, now: datetime) -> ProbeResult:
    """Return whether no thread is stuck: otherwise a restart of the job would not help.

    It would not where the job waits for brokers or the topic, nor where the stream fails: the job starts it again, and
    ends by itself if that does not help.
    """
    if job.evaluated_at and now - job.evaluated_at > _MAX_STANDSTILL:
        return ProbeResult(ok=False, reason=f"no alert has been evaluated since {utc(job.evaluated_at)}")
    if waiting := _waits_for(job) or _fails(job):
        return ProbeResult(ok=True, reason=f"waiting: {waiting}")
    last_progress = max(at for at in (job.last_success_at, job.progress_at, job.started_at) if at)
    if now - last_progress > _MAX_STANDSTILL:
        return ProbeResult(ok=False, reason=f"the stream has made no progress since {utc(last_progress)}")
    return ProbeResult(ok=True, reason="the stream is running")


def check_readiness(job: JobStatus, now: datetime) -> ProbeResult:
    """Return whether the tables are at most about a minute behind the brokers."""
    if waiting := _waits_for(job) or _fails(job):
        return ProbeResult(ok=False, reason=waiting)
    liveness = check_liveness(job, now)
    if not liveness.ok:
        return liveness
    behind = _is_behind(job)
    if not job.caught_up:
        return ProbeResult(ok=False, reason=f"not caught up with the topic yet: {behind}")
    if job.behind_since and now - job.behind_since > _MAX_BEHIND:
        return ProbeResult(ok=False, reason=f"{behind} since {utc(job.behind_since)}")
    return ProbeResult(ok=True, reason="caught up")


def why_late(job: JobStatus) -> str:
    """Return why the job is not at the end of the topic, in a few words."""
    return _waits_for(job) or _fails(job) or _is_behind(job)


def _waits_for(job: JobStatus) -> str | None:
    """Return what the job waits for, and since when; None if it does not wait."""
    if job.waits_for:
        return job.waits_for
    if job.brokers_away_since:
        return f"no broker has answered since {utc(job.brokers_away_since)}"
    if job.topic_missing_since:
        return f"there has been no such topic since {utc(job.topic_missing_since)}"
    return None


def _fails(job: JobStatus) -> str | None:
    return f"the stream fails since {utc(job.failing_since)}: {job.failure}" if job.failing_since else None


def _is_behind(job: JobStatus) -> str:
    is_reading = not job.behind and not job.caught_up  # the first batches: how much there is to read is not known yet
    return "still reading" if is_reading else f"{count(job.behind, 'offset')} behind"


def complete_at(status: JobStatus) -> datetime | None:
    """Return when the rows lacked nothing that compaction may have removed since; None if that is not known."""
    return max((at for at in (status.caught_up_at, status.read_from_beginning_at) if at), default=None)


def time_away(status: JobStatus, now: datetime) -> timedelta | None:
    """Return for how long the job has not been at the end of the topic; None if that is not known."""
    at = complete_at(status)
    return None if at is None or at > now + _CLOCK_SLACK else max(now - at, timedelta())


def is_gap_too_long(status: JobStatus, at: datetime, retention: timedelta) -> bool:
    """Return whether a running job that has read up to the end of the topic by `at` may have missed tombstones.

    `retention` is the topic's `delete.retention.ms`. The end of reading from the beginning is no gap, even if it took
    too long: reading again would take as long.
    """
    began, caught_up_at = status.read_from_beginning_at, status.caught_up_at
    if caught_up_at is None or (began is not None and began > caught_up_at):
        return False
    return at - caught_up_at > max(retention, _SHORTEST)

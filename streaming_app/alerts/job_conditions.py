"""The conditions of the rules about the job and its input."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from streaming_app.alerts.alert import NEWS, OVER, WARNING, Holds, Truth
from streaming_app.job_status import JobStatus
from streaming_app.text import count, gibibytes, round_down, utc

_FREE_PERCENT, _FREE = 5, 256 << 20  # less free space is too little: a percentage below `_PLENTY`, or these bytes
_PLENTY = 10 << 30
"""So many free bytes are enough on a disk of any size."""
_SHOWN = timedelta(days=1)  # how long the rule fires after the newest event
_OFFSETS_MAY_STOP = timedelta(minutes=8)  # how long the second stream may stop: lag matters less than states
_SILENCE = timedelta(minutes=10)  # a stream that completes no batch for so long has stopped

_Cause = tuple[datetime | None, str, str]
"""Since when (None: the cause does not apply), a word, and a text."""


def _stopped(job: JobStatus, now: datetime) -> Truth:
    last = f"since {utc(job.last_success_at)}" if job.last_success_at else f"since the start at {utc(job.started_at)}"
    found = _of_causes(
        "The job reads nothing: {}; the tables are not updated",
        (job.brokers_away_since, "brokers_away", "no broker responds"),
        (job.failing_since, "failing", f"its stream fails: {job.failure or 'unknown cause'}"),
        (_silent_since(job.last_success_at or job.started_at, now), "silent", f"no batch has completed {last}"),
        failure=job.failure,
    )
    return found or _offsets_stopped(job, now) or OVER


def _offsets_stopped(job: JobStatus, now: datetime) -> Holds | None:
    causes, offsets = list[_Cause](), job.offsets
    if offsets and offsets.failing_since:
        text = f"its stream fails: {offsets.failure or 'unknown cause'}"
        causes.append((offsets.failing_since, "stream_failing", text))
    elif offsets:
        silent_since = _silent_since(offsets.last_success_at or job.started_at, now)
        causes.append((silent_since, "stream_silent", "its stream has completed no batch"))
    text = f"the ends of the logs are not known: {job.lag_failure or 'unknown cause'}"
    causes.append((job.lag_failing_since, "lag_failing", text))
    found = _of_causes("Committed offsets and lag are not updated: {}", *causes, severity=WARNING)
    return found if found and found.since and now - found.since >= _OFFSETS_MAY_STOP else None


def _silent_since(last: datetime, now: datetime) -> datetime | None:
    """Return since when a stream counts as stopped, if its last batch completed at `last`; None if it does not yet."""
    return last + _SILENCE if now >= last + _SILENCE else None


def _of_causes(summary: str, *causes: _Cause, failure: str | None = None, severity: str | None = None) -> Holds | None:
    """Return `Holds` with the causes that apply, since the first of them; None if none applies."""
    real = [(since, word, text) for since, word, text in causes if since is not None]
    if not real:
        return None
    times, words, texts = zip(*real, strict=True)
    evidence = {"causes": list(words), **({"failure": failure} if failure else {})}
    return Holds(min(times), summary.format("; ".join(texts)), evidence, severity)


def _behind(job: JobStatus, _now: datetime) -> Truth:
    if job.behind_since is None or not job.caught_up:
        return OVER if job.caught_up else None
    at_least = round_down(job.behind)
    text = (
        f"The job has been behind since {utc(job.behind_since)}, by at least {count(at_least, 'offset')}; the tables "
        "and the alerts are late"
    )
    return Holds(job.behind_since, text, {"offsets_at_least": at_least})


def _notifications_failing(job: JobStatus, _now: datetime) -> Truth:
    failing = {sink.name: sink.failure for sink in job.failing_sinks}
    if not failing:
        return OVER
    text = f"Alerts cannot be sent to {', '.join(failing)}: {job.failing_sinks[0].failure}"
    since = min(filter(None, (sink.failing_since for sink in job.failing_sinks)), default=None)
    return Holds(since, text, {"sinks": failing})


def _disk_full(job: JobStatus, _now: datetime) -> Truth:
    little = [disk for disk in job.disks if disk.free * 100 < disk.size * _FREE_PERCENT and disk.free < _PLENTY]
    full = [disk for disk in job.disks if disk in little or disk.free < _FREE]
    if not full:
        return OVER
    paths, size = " and ".join(dict.fromkeys(disk.path for disk in full)), gibibytes(full[0].size)
    return Holds(
        min(filter(None, (disk.low_since for disk in full)), default=None),
        f"The disk of {paths} is almost full: too little of its {size} is free; on a full disk the job reads nothing",
        {"paths": [disk.path for disk in full], "size": size},
    )


def _lost_or_undecodable(job: JobStatus, now: datetime) -> Truth:
    """Return the newest: the brokers lost records that the job had read, records were quarantined, a type is unknown.

    Records of an unknown type come for days and of each group: only the first of its type counts.
    """
    lost = f"The brokers lost records of groups: {job.truncated}; found at "
    undecodable = f"{count(job.quarantined, 'record')} could not be decoded, see the table quarantine; the latest at "
    events: list[tuple[datetime | None, str, dict[str, object]]] = [
        (job.truncated_at, lost, {"lost": job.truncated}),
        (job.quarantined_at, undecodable, {"records": job.quarantined}),
    ]
    if new := {kind: one.since for kind, one in sorted(job.unknown_types.items()) if now - one.since < _SHOWN}:
        unknown = (
            f"Records of type {', '.join(map(str, new))} are of a newer Kafka, and not read: look for a release of "
            "streams-groups whose schemas/RECORDS.md has the type; the first was read at "
        )
        events.append((max(new.values()), unknown, {}))
    found = [(at, text, what) for at, text, what in events if at and now - at < _SHOWN]
    if not found or not job.caught_up:
        return OVER if job.caught_up else None
    at, text, what = max(found, key=lambda one: one[0])
    types = {NEWS: [*new]} if new else {}
    return Holds(at, text + utc(at), {**what, **types, "newest": at.isoformat()})


JOB_CONDITIONS: Mapping[str, Callable[[JobStatus, datetime], Truth]] = {
    "StreamsGroupsJobStopped": _stopped,
    "StreamsGroupsJobBehind": _behind,
    "StreamsGroupsNotificationsFailing": _notifications_failing,
    "StreamsGroupsDiskAlmostFull": _disk_full,
    "StreamsGroupsUndecodableRecords": _lost_or_undecodable,
}
"""Rule -> its condition. While the job catches up, some conditions are unknown and leave their alert as it is."""

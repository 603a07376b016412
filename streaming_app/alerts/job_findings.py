"""The rules about the job itself, what it reads, and rows that it found to differ from the brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from streaming_app.alerts.problem import WARNING, Finding
from streaming_app.alerts.rule import (
    EvaluationContext,
    format_time,
    is_recent,
    to_iso,
)
from streaming_app.job_status import DiskSpace, JobStatus
from streaming_app.text import EPOCH, count, gibibytes, round_down

_FREE_PERCENT, _FREE = 5, 256 << 20  # of the disk unless `_PLENTY` is free; bytes, whatever its size is
_SHOWN = timedelta(days=1)  # after the newest event
_OFFSETS_MAY_STOP = timedelta(minutes=8)  # before it counts: lag is worth less than the state of groups
_SILENCE = timedelta(minutes=10)  # in which a stream completes no batch
_PLENTY = 10 << 30
"""Bytes that are enough, however large the disk is."""


def _undecodable(job: JobStatus, context: EvaluationContext) -> Finding | None:
    at = job.quarantined_at
    if at is None or not is_recent(at, _SHOWN, context.now):
        return None
    return Finding(
        at,
        f"{count(job.quarantined, 'record')} could not be decoded, see the table quarantine; "
        f"the latest at {format_time(at)}",
        {"records": job.quarantined, "newest": to_iso(at)},
    )


def _truncated(job: JobStatus, context: EvaluationContext) -> Finding | None:
    at = job.truncated_at
    if at is None or not is_recent(at, _SHOWN, context.now):
        return None
    return Finding(
        at,
        f"The brokers lost records of groups: {job.truncated}; found at {format_time(at)}",
        {"lost": job.truncated, "newest": to_iso(at)},
    )


def _behind(job: JobStatus, _context: EvaluationContext) -> Finding | None:
    if job.behind_since is None:
        return None
    at_least = round_down(job.behind)
    return Finding(
        job.behind_since,
        f"The job has been behind since {format_time(job.behind_since)}, by at least "
        f"{count(at_least, 'offset')}; the tables and the alerts are late",
        {"offsets_at_least": at_least},
    )


def _stopped(job: JobStatus, context: EvaluationContext) -> Finding | None:
    silent_since = (job.last_success_at or job.started_at) + _SILENCE
    causes = [
        (since, cause, text)
        for since, cause, text in (
            (job.brokers_away_since, "brokers_away", "no broker responds"),
            (job.failing_since, "failing", f"its stream fails: {job.failure or 'unknown cause'}"),
            (
                silent_since if context.now >= silent_since else None,
                "silent",
                f"no batch has completed {_format_last_success(job)}",
            ),
        )
        if since is not None
    ]
    if not causes:
        return None
    since = min(since for since, _, _ in causes)
    text = "; ".join(text for _, _, text in causes)
    return Finding(
        since,
        f"The job reads nothing: {text}; the tables are not updated",
        {"causes": [cause for _, cause, _ in causes], **({"failure": job.failure} if job.failure else {})},
    )


def _offsets_stopped(job: JobStatus, context: EvaluationContext) -> Finding | None:
    if job.brokers_away_since is not None or job.failing_since is not None:
        return None  # StreamsGroupsJobStopped says so
    causes: list[tuple[datetime, str, str]] = []
    offsets = job.offsets
    if offsets is not None:
        silent_since = (offsets.last_success_at or job.started_at) + _SILENCE
        if offsets.failing_since is not None:
            failure = offsets.failure or "unknown cause"
            causes.append((offsets.failing_since, "stream_failing", f"its stream fails: {failure}"))
        elif context.now >= silent_since:
            causes.append((silent_since, "stream_silent", "its stream has completed no batch"))
    if job.lag_failing_since is not None:
        failure = job.lag_failure or "unknown cause"
        causes.append((job.lag_failing_since, "lag_failing", f"the ends of the logs are not known: {failure}"))
    if not causes:
        return None
    since = min(since for since, _, _ in causes)
    if context.now - since < _OFFSETS_MAY_STOP:
        return None
    return Finding(
        since,
        f"Committed offsets and lag are not updated: {'; '.join(text for _, _, text in causes)}",
        {"causes": [cause for _, cause, _ in causes]},
        severity=WARNING,
    )


def _notifications_failing(job: JobStatus, _context: EvaluationContext) -> Finding | None:
    if not job.failing_sinks:
        return None
    names = ", ".join(sink.name for sink in job.failing_sinks)
    return Finding(
        min(sink.since for sink in job.failing_sinks),
        f"Alerts cannot be sent to {names}: {job.failing_sinks[0].failure}",
        {"sinks": {sink.name: sink.failure for sink in job.failing_sinks}},
    )


def _disk_full(job: JobStatus, _context: EvaluationContext) -> Finding | None:
    full = [disk for disk in job.disks if _is_full(disk)]
    if not full:
        return None
    paths = " and ".join(dict.fromkeys(disk.path for disk in full))
    size = gibibytes(full[0].size)
    return Finding(
        min(filter(None, (disk.low_since for disk in full)), default=None),
        f"The disk of {paths} is almost full: of {size} too little is free; without any, the job reads nothing",
        {"paths": [disk.path for disk in full], "size": size},
    )


def _is_full(disk: DiskSpace) -> bool:
    is_little = disk.free * 100 < disk.size * _FREE_PERCENT and disk.free < _PLENTY
    return is_little or disk.free < _FREE


def _format_last_success(job: JobStatus) -> str:
    if job.last_success_at:
        return f"since {format_time(job.last_success_at)}"
    return f"since the start at {format_time(job.started_at)}"


def _lost_or_undecodable(job: JobStatus, context: EvaluationContext) -> Finding | None:
    """Return the newer of the two."""
    found = (_truncated(job, context), _undecodable(job, context))
    return max(filter(None, found), key=lambda one: one.since or EPOCH, default=None)


FINDINGS: Mapping[str, Callable[[JobStatus, EvaluationContext], Finding | None]] = {
    "StreamsGroupsJobStopped": lambda job, context: _stopped(job, context) or _offsets_stopped(job, context),
    "StreamsGroupsJobBehind": _behind,
    "StreamsGroupsNotificationsFailing": _notifications_failing,
    "StreamsGroupsDiskAlmostFull": _disk_full,
    "StreamsGroupsUndecodableRecords": _lost_or_undecodable,
}
"""What is found of each rule about the job."""

"""The rules about the job itself, what it reads, and rows that it found to differ from the brokers."""

from __future__ import annotations

from datetime import datetime, timedelta

from streaming_app.alerts.problem import CRITICAL, Finding
from streaming_app.alerts.rule import (
    DAY,
    HOUR,
    MINUTE,
    EvaluationContext,
    Rule,
    Threshold,
    Thresholds,
    format_time,
    is_recent,
    to_iso,
)
from streaming_app.job_status import DifferingGroup, DiskSpace, JobStatus
from streaming_app.text import count, first_of, gibibytes, round_down

_MIB = 1 << 20
_PLENTY = 10 << 30
"""Bytes that are enough, however large the disk is."""


def _undecodable(job: JobStatus, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    at = job.quarantined_at
    if at is None or not is_recent(at, thresholds["window"], context.now):
        return None
    return Finding(
        at,
        f"{count(job.quarantined, 'record')} could not be decoded, see the table quarantine; "
        f"the latest at {format_time(at)}",
        {"records": job.quarantined, "newest": to_iso(at)},
    )


def _truncated(job: JobStatus, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    at = job.truncated_at
    if at is None or not is_recent(at, thresholds["window"], context.now):
        return None
    return Finding(
        at,
        f"The brokers lost records of groups: {job.truncated}; found at {format_time(at)}",
        {"lost": job.truncated, "newest": to_iso(at)},
    )


def _behind(job: JobStatus, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    if job.behind_since is None:
        return None
    at_least = round_down(job.behind)
    return Finding(
        job.behind_since,
        f"The job has been behind since {format_time(job.behind_since)}, by at least "
        f"{count(at_least, 'offset')}; the tables and the alerts are late",
        {"offsets_at_least": at_least},
    )


def _stopped(job: JobStatus, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    silent_since = (job.last_success_at or job.started_at) + timedelta(seconds=thresholds["silence"])
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


def _offsets_stopped(job: JobStatus, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    if job.brokers_away_since is not None or job.failing_since is not None:
        return None  # StreamsGroupsJobStopped says so
    causes: list[tuple[datetime, str, str]] = []
    offsets = job.offsets
    if offsets is not None:
        silent_since = (offsets.last_success_at or job.started_at) + timedelta(seconds=thresholds["silence"])
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
    return Finding(
        since,
        f"Committed offsets and lag are not updated: {'; '.join(text for _, _, text in causes)}",
        {"causes": [cause for _, cause, _ in causes]},
    )


def _notifications_failing(job: JobStatus, _thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    if not job.failing_sinks:
        return None
    names = ", ".join(sink.name for sink in job.failing_sinks)
    return Finding(
        min(sink.since for sink in job.failing_sinks),
        f"Alerts cannot be sent to {names}: {job.failing_sinks[0].failure}",
        {"sinks": {sink.name: sink.failure for sink in job.failing_sinks}},
    )


def _disk_full(job: JobStatus, thresholds: Thresholds, _context: EvaluationContext) -> Finding | None:
    full = [disk for disk in job.disks if _is_full(disk, thresholds)]
    if not full:
        return None
    paths = " and ".join(dict.fromkeys(disk.path for disk in full))
    size = gibibytes(full[0].size)
    return Finding(
        min(filter(None, (disk.low_since for disk in full)), default=None),
        f"The disk of {paths} is almost full: of {size} too little is free; without any, the job reads nothing",
        {"paths": [disk.path for disk in full], "size": size},
    )


def _is_full(disk: DiskSpace, thresholds: Thresholds) -> bool:
    is_little = disk.free * 100 < disk.size * thresholds["free_percent"] and disk.free < _PLENTY
    return is_little or disk.free < thresholds["free_mib"] * _MIB


def _format_last_success(job: JobStatus) -> str:
    if job.last_success_at:
        return f"since {format_time(job.last_success_at)}"
    return f"since the start at {format_time(job.started_at)}"


JOB_RULES = (
    Rule(
        name="StreamsGroupsJobStopped",
        find=_stopped,
        severity=CRITICAL,
        for_seconds=2 * MINUTE,
        thresholds={"silence": Threshold(10 * MINUTE, "how long no batch may complete", seconds=True)},
        while_catching_up=True,
        meaning=(
            "The job runs, but reads nothing: no broker responds, or its stream fails and is restarted, or no batch "
            "has completed for ten minutes. The tables are not updated, and no alert about a group can fire or "
            "resolve. In a rolling upgrade, a broker restart takes less than the two minutes. This alert comes from "
            "the job itself and cannot fire if the whole process is gone: have Prometheus or the supervisor monitor "
            "that."
        ),
        queries={
            "How old is the newest record in the tables?": (
                "SELECT cluster, max(updated_at) AS newest_record, count(*) AS groups FROM groups GROUP BY cluster"
            ),
        },
        steps=(
            "No broker responds: check the brokers, the network, and the listener in `--bootstrap-server`. The job "
            "waits without limit and continues by itself.",
            "The stream fails: the alert has the cause in one line, and `_jobs/CLUSTER.spark.log` in the warehouse "
            "has the details. The usual causes are a full disk, a missing ACL and missing checkpoint files. After "
            "four failures in a row the job exits with code 1.",
            "No batch completes: a batch is very large (the first one; lower `--max-offsets-per-trigger`), or the "
            "machine or its disk is overloaded.",
        ),
    ),
    Rule(
        name="StreamsGroupsJobBehind",
        find=_behind,
        for_seconds=5 * MINUTE,
        meaning=(
            "For five minutes each batch has left offsets unread, so the job reads more slowly than the brokers write. "
            "The tables and alerts are late by as much as the job is behind. This alert does not fire during the first "
            "catch-up after a start."
        ),
        queries={
            "How far have the tables got, by partition?": (
                "SELECT cluster, source_partition, max(last_offset) AS last_offset, max(updated_at) AS newest_record\n"
                "FROM groups GROUP BY cluster, source_partition ORDER BY newest_record LIMIT 50"
            ),
        },
        steps=(
            "After the brokers were down, or after a burst: wait until it has caught up.",
            "All the time: give the job more CPU or a faster disk, and find out which applications commit so many "
            "offsets (with exactly-once, every 100 ms by default).",
        ),
    ),
    Rule(
        name="StreamsGroupsOffsetsStopped",
        find=_offsets_stopped,
        for_seconds=10 * MINUTE,
        thresholds={"silence": Threshold(10 * MINUTE, "how long its stream may complete no batch", seconds=True)},
        while_catching_up=True,
        meaning=(
            "The tables `offsets`, `all_groups` and `lag` are not updated: the second stream of the job, which reads "
            "committed offsets, fails or completes no batch, or the brokers do not answer the requests for the ends of "
            "the logs. The state of streams groups and the other alerts are not affected. Alerts about lag stay as "
            "they are until it is known again."
        ),
        queries={
            "How old are the newest commit and the newest pass?": (
                "SELECT cluster, max(committed_at) AS newest_commit, max(observed_at) AS newest_pass FROM lag\n"
                "GROUP BY cluster"
            ),
        },
        steps=(
            "The alert has the cause in one line, and `_jobs/CLUSTER.spark.log` in the warehouse has the details of a "
            "stream that fails. It is tried again every five minutes, for as long as the job runs.",
            "No batch completes: far more offsets are committed than the job can read. Give it more CPU, or a longer "
            "`offsets.trigger`.",
            "The ends of the logs: the job's principal needs Describe on the topics, and the brokers must be reachable "
            "from the job's own process, too, not only from Spark's.",
        ),
    ),
    Rule(
        name="StreamsGroupsNotificationsFailing",
        find=_notifications_failing,
        severity=CRITICAL,
        for_seconds=5 * MINUTE,
        while_catching_up=True,
        meaning=(
            "A sink has accepted no notification for five minutes. What is due to it is kept in the table `alerts`, "
            "and sent when it works again. This alert goes to all sinks, so it arrives through the others. With a "
            "single sink, have Prometheus watch `streams_groups_notifications_waiting`."
        ),
        queries={
            "What was not sent, and why?": (
                "SELECT rule, group_id, opened_at, d['sink'] AS sink, d['attempts'] AS attempts, d['error'] AS error\n"
                "FROM (SELECT rule, group_id, opened_at, unnest(deliveries) AS d FROM alerts)\n"
                "WHERE d['sent_at'] IS NULL ORDER BY opened_at LIMIT 50"
            ),
        },
        steps=(
            "Run `streams-groups check`: it tries each sink, and with `--send-test` sends a notification to each.",
            "The error names the host and what to do. A password that was changed is read again from its file; a "
            "changed URL in the configuration needs a restart of the job.",
        ),
    ),
    Rule(
        name="StreamsGroupsDiskAlmostFull",
        find=_disk_full,
        severity=CRITICAL,
        while_catching_up=True,
        thresholds={
            "free_percent": Threshold(5, "percent of the disk that are free at least, unless 10 GiB are"),
            "free_mib": Threshold(256, "MiB that are free at least, whatever the size of the disk"),
        },
        meaning=(
            "The disk of the warehouse, or of the state directory, is almost full. Without free space the job cannot "
            "write its tables and checkpoints: it stops reading, and the alerts that are open are kept in memory only. "
            "Nothing that is in the tables is lost, and no alert is resolved by it."
        ),
        queries={
            "How many rows do the tables that grow have?": (
                "SELECT (SELECT count(*) FROM group_events) AS events,\n"
                "  (SELECT count(*) FROM lag_history) AS lag_samples"
            ),
        },
        steps=(
            "Make the disk larger, or lower `retention_days` and `lag.history_days`: maintenance then deletes old rows "
            "and files, within a day.",
            "`streams-groups status` shows files and bytes of each table.",
            "Something else fills the disk: give the warehouse a volume of its own.",
        ),
    ),
    Rule(
        name="StreamsGroupsUndecodableRecords",
        find=_undecodable,
        for_seconds=None,
        thresholds={"window": Threshold(DAY, "how long it fires after the latest one", seconds=True)},
        meaning=(
            "Records of groups could not be decoded. They are kept in full in `quarantine`, and the job continued. "
            "Their changes are missing from the tables, so the affected groups may be incorrect there until their next "
            "record. The alert resolves a day after the latest one."
        ),
        queries={
            "Which records, and what is wrong with them?": (
                "SELECT timestamp, group_id, error_kind, message, partition, q.offset FROM quarantine q\n"
                "ORDER BY timestamp DESC LIMIT 20"
            ),
            "Which errors, and since when?": (
                "SELECT cluster, error_kind, message, count(*) AS records, min(timestamp) AS since FROM quarantine\n"
                "GROUP BY cluster, error_kind, message ORDER BY records DESC LIMIT 20"
            ),
        },
        steps=(
            "`UnknownRecordType`, `UnknownValueVersion`: the brokers are newer than this release. Install a release of "
            "streams-groups that knows them, and start it once with `--reset` to read everything again.",
            "`MalformedRecord`: check that `--dialect` is right for these brokers. If it is, report a bug with the "
            "bytes in `key` and `value`.",
            "Run `streams-groups verify --bootstrap-server ...` to see whether any group is incorrect.",
        ),
    ),
    Rule(
        name="StreamsGroupsLogTruncated",
        find=_truncated,
        for_seconds=None,
        thresholds={"window": Threshold(DAY, "how long it fires after the latest one", seconds=True)},
        meaning=(
            "An unclean leader election cut the log of a partition of the offsets topic: records that the brokers had "
            "acknowledged, and that the job had read, no longer exist. The job has read these partitions again. The "
            "tables hold what the brokers hold, and the history of the lost records is marked `void`. For the groups "
            "themselves the loss is real: members rejoin, and committed offsets may have gone back, so that records "
            "are processed twice. Records that DeleteRecords or a retention removed before the job had read them are "
            "named as well: nothing of the history is void then, and what they said is not in it. The alert resolves a "
            "day after the latest one."
        ),
        queries={
            "Which groups had records there?": (
                "SELECT at, group_id, old, new FROM group_events WHERE kind = 'log_truncated' ORDER BY at DESC LIMIT 20"
            ),
            "What of the history never happened, as far as the brokers know?": (
                "SELECT at, group_id, kind, old, new, e.offset, log_epoch FROM group_events e WHERE void\n"
                "ORDER BY at DESC LIMIT 20"
            ),
        },
        steps=(
            "Find out why every replica in the ISR was away: the alert names topic, partition and offsets, and the "
            "controller's log has the election.",
            "Set `unclean.leader.election.enable=false` and `min.insync.replicas=2` for the offsets topic, unless "
            "groups that work are worth more than their offsets.",
            "Look at the groups above: whether their applications may process records twice.",
        ),
    ),
)
"""In the order of the runbook."""


_FIELDS_IN_SUMMARY = 3  # the details have more


def _differs(group: DifferingGroup, thresholds: Thresholds, context: EvaluationContext) -> Finding | None:
    agreed_at = group.agreed_at
    if agreed_at is not None and not is_recent(agreed_at, thresholds["window"], context.now):
        return None
    fields = first_of([name for name, _ in group.fields], _FIELDS_IN_SUMMARY, group.field_count)
    if agreed_at is None:
        summary = f"{group.group_id}: the tables differ from the broker in {fields}"
    else:
        summary = f"{group.group_id}: the tables differed from the broker in {fields}, until {format_time(agreed_at)}"
    details: dict[str, object] = {"fields": dict(group.fields), "field_count": group.field_count}
    if group.repair is not None:
        summary += f"; {group.repair}"
        details["repair"] = group.repair
    if agreed_at is not None:
        details["agreed_at"] = to_iso(agreed_at)
    return Finding(group.since, summary, details)


SELF_CHECK_RULES = (
    Rule(
        name="StreamsGroupsSelfCheckFailed",
        find=_differs,
        for_seconds=None,
        thresholds={"window": Threshold(HOUR, "how long it fires after the group agreed again", seconds=True)},
        meaning=(
            "The job compares its tables with the brokers' StreamsGroupDescribe after each start and once an hour, and "
            "this group differed twice, a minute apart, although the job had read everything. It then reads the "
            "group's records again, from the beginning of their partition, and replaces the row; the history stays as "
            "it is. The alert has the fields that differed and the result. It resolves an hour after the group agreed "
            "again. Until then other alerts about the group may be wrong."
        ),
        queries={
            "What do the tables hold?": (
                "SELECT state, group_epoch, assignment_epoch, topology_epoch, member_count, updated_at,\n"
                "  source_partition, last_offset FROM groups WHERE group_id = 'GROUP_ID'"
            ),
            "Could records of the group not be decoded?": (
                "SELECT timestamp, error_kind, message, partition, q.offset FROM quarantine q\n"
                "WHERE group_id = 'GROUP_ID' ORDER BY timestamp DESC LIMIT 20"
            ),
            "What happened last, according to the log?": (
                "SELECT at, kind, member_id, old, new, e.offset FROM group_events e\n"
                "WHERE group_id = 'GROUP_ID' ORDER BY at DESC, e.offset DESC LIMIT 30"
            ),
        },
        steps=(
            "The row was replaced and the group agrees: find out what wrote the table. Nothing but the job may write "
            "into the warehouse; a table restored from a backup and a second job on an object store are the usual "
            "causes. Otherwise report a bug, with the fields that differed.",
            "Its records give the same row, and some are in `quarantine`: the log has changes that this release cannot "
            "read, see StreamsGroupsUndecodableRecords.",
            "Its records give the same row, and the broker does not know the group: a coordinator drops an empty group "
            "from its memory, without a record, when a client of another group type joins with its id. The group is "
            "there again once the coordinator has loaded the partition again.",
            "The row changed all the time: the next check tries again. Run `streams-groups verify` meanwhile.",
            "Many groups differ: start the job once with `--reset`, which reads the topic from the beginning.",
        ),
    ),
)
"""In the order of the runbook."""

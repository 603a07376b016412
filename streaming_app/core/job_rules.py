"""The rules about the job itself and what it reads: undecodable records, unknown fields, behind, stopped."""

from __future__ import annotations

from datetime import timedelta

from streaming_app.core.alert import CRITICAL, INFO, Finding
from streaming_app.core.facts import JobFacts
from streaming_app.core.rule import DAY, MINUTE, Look, Rule, Threshold, Thresholds, clock, count, is_recent, iso


def _undecodable(job: JobFacts, thresholds: Thresholds, look: Look) -> Finding | None:
    at = job.quarantined_at
    if at is None or not is_recent(at, thresholds["window"], look.now):
        return None
    return Finding(
        at,
        f"{count(job.quarantined, 'record')} could not be decoded and wait in quarantine, newest {clock(at)}",
        {"records": job.quarantined, "newest": iso(at)},
    )


def _drift(job: JobFacts, thresholds: Thresholds, look: Look) -> Finding | None:
    at = job.drifted_at
    if at is None or not is_recent(at, thresholds["window"], look.now):
        return None
    return Finding(
        at,
        f"The brokers write fields that this release does not know, into {count(job.drifted, 'record')} so far",
        {"records": job.drifted, "newest": iso(at)},
    )


def _behind(job: JobFacts, _thresholds: Thresholds, _look: Look) -> Finding | None:
    if job.behind_since is None:
        return None
    about = _floor(job.behind)
    return Finding(
        job.behind_since,
        f"The job has been behind since {clock(job.behind_since)}, by at least {count(about, 'offset')}; "
        "the tables and the alerts are late",
        {"offsets_at_least": about},
    )


def _floor(number: int) -> int:
    """The number's first digit, the others zero: what changes at every look would be written at every look."""
    unit: int = 10 ** (len(str(number)) - 1)
    return number // unit * unit


def _stopped(job: JobFacts, thresholds: Thresholds, look: Look) -> Finding | None:
    silent = (job.last_success_at or job.started_at) + timedelta(seconds=thresholds["silence"])
    causes = [
        (since, cause, text)
        for since, cause, text in (
            (job.brokers_away_since, "brokers_away", "no broker answers"),
            (job.failing_since, "failing", f"its stream fails: {job.failure or 'cause unknown'}"),
            (silent if look.now >= silent else None, "silent", f"no batch has ended well {_since_when(job)}"),
        )
        if since is not None
    ]
    if not causes:
        return None
    since = min(since for since, _, _ in causes)
    told = "; ".join(text for _, _, text in causes)
    return Finding(
        since,
        f"The job reads nothing: {told}; the tables stand still",
        {"causes": [cause for _, cause, _ in causes], **({"failure": job.failure} if job.failure else {})},
    )


def _since_when(job: JobFacts) -> str:
    return (
        f"since {clock(job.last_success_at)}" if job.last_success_at else f"since the start at {clock(job.started_at)}"
    )


JOB_RULES = (
    Rule(
        name="StreamsGroupsJobStopped",
        find=_stopped,
        severity=CRITICAL,
        grace=2 * MINUTE,
        thresholds={"silence": Threshold(10 * MINUTE, "how long no batch may end well", seconds=True)},
        while_catching_up=True,
        meaning=(
            "The job runs, and reads nothing: no broker answers, or its stream fails and is started again, or no "
            "batch has ended for ten minutes. The tables stand still, and no alert about a group can fire or resolve. "
            "The broker restart of a rolling upgrade is over within the two minutes of grace. This alert comes from "
            "the job itself: that the whole process is gone only others can tell, so let Prometheus or the supervisor "
            "watch it."
        ),
        look_at={
            "How old is the newest thing in the tables?": (
                "SELECT cluster, max(updated_at) AS newest_record, count(*) AS groups FROM groups GROUP BY cluster"
            ),
        },
        to_do=(
            "No broker answers: look at the brokers, the network, and the listener in `--bootstrap-server`. The job "
            "waits, however long, and goes on by itself.",
            "The stream fails: the alert holds the cause in one line, and `_jobs/CLUSTER.spark.log` in the warehouse "
            "the whole of it. A full disk, a missing ACL and lost files of the checkpoint are the usual ones. After "
            "four failures in a row the job ends with exit code 1.",
            "No batch ends: a batch is very large (the first one; lower `--max-offsets-per-trigger`), or the machine "
            "or its disk is overloaded.",
        ),
    ),
    Rule(
        name="StreamsGroupsJobBehind",
        find=_behind,
        grace=5 * MINUTE,
        meaning=(
            "For five minutes each batch has left offsets unread, so the job takes in less than the brokers write. "
            "Tables and alerts are as late as the job is behind. It says nothing during the first catch-up after a "
            "start."
        ),
        look_at={
            "How far do the tables reach, by partition?": (
                "SELECT cluster, source_partition, max(last_offset) AS last_offset, max(updated_at) AS newest_record\n"
                "FROM groups GROUP BY cluster, source_partition ORDER BY newest_record LIMIT 50"
            ),
        },
        to_do=(
            "After the brokers were away, or after a burst: wait, it catches up.",
            "Always: give the job more processor time or a faster disk, and look for who commits so many offsets "
            "(exactly-once applications do so every 100 ms by default).",
        ),
    ),
    Rule(
        name="StreamsGroupsUndecodableRecords",
        find=_undecodable,
        grace=None,
        thresholds={"window": Threshold(DAY, "how long after the newest one it is told", seconds=True)},
        meaning=(
            "Records of groups could not be decoded. They are kept whole in `quarantine`, and the job went on. What "
            "they would have changed is missing from the tables, so the groups concerned may show wrongly until their "
            "next record. It resolves a day after the newest one."
        ),
        look_at={
            "Which records, and what is wrong with them?": (
                "SELECT timestamp, group_id, error_kind, message, partition, q.offset FROM quarantine q\n"
                "ORDER BY timestamp DESC LIMIT 20"
            ),
            "Of which kinds, and since when?": (
                "SELECT cluster, error_kind, message, count(*) AS records, min(timestamp) AS since FROM quarantine\n"
                "GROUP BY cluster, error_kind, message ORDER BY records DESC LIMIT 20"
            ),
        },
        to_do=(
            "`UnknownRecordType`, `UnknownValueVersion`: the brokers are newer than this release. Look for a release "
            "of streams-groups that knows them; then start it once with `--reset`, so that all is read anew.",
            "`MalformedRecord`: is `--dialect` right for these brokers? If it is, report it, with the bytes: they are "
            "in `key` and `value`.",
            "`streams-groups verify --bootstrap-server ...` tells whether any group shows wrongly.",
        ),
    ),
    Rule(
        name="StreamsGroupsSchemaDrift",
        find=_drift,
        severity=INFO,
        grace=None,
        thresholds={"window": Threshold(DAY, "how long after the newest one it is told", seconds=True)},
        meaning=(
            "Records hold tagged fields that this release does not know, as they do after a broker upgrade. They are "
            "skipped as Kafka's own readers do, and everything known is still read. Nothing is wrong; something new is "
            "not shown. It resolves a day after the newest one."
        ),
        look_at={
            "Which groups were written to last?": (
                "SELECT cluster, group_id, updated_at FROM groups ORDER BY updated_at DESC LIMIT 20"
            ),
        },
        to_do=(
            "Look for a release of streams-groups that knows the brokers' release.",
            "To see the fields: print records with Kafka's console consumer and give them to `streams-groups decode`, "
            "which shows them as `unknownTags`.",
        ),
    ),
)
"""In the order of the runbook."""

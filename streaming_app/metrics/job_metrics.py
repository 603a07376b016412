"""The metrics of the job and of the whole cluster. Only definitions: name, type, help, labels, value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from offsets_decoder.definitions import record
from streaming_app.alerts.outbox import SinkStatus
from streaming_app.alerts.problem import Identity
from streaming_app.groups.state_rules import DEAD, STATES
from streaming_app.health.history import CALLS, REBALANCE
from streaming_app.job_status import DiskSpace, JobStatus, OffsetsStatus, inputs
from streaming_app.metrics.metric import Metric, Sample, renamed, unix_seconds
from streaming_app.stream.batch_outcome import PHASES
from streaming_app.stream.health import Totals

_STATES = tuple(state for state in STATES if state != DEAD)


class JobScrape(NamedTuple):
    """The data of the job and the cluster at a scrape."""

    status: JobStatus
    totals: Totals
    groups_by_state: Mapping[str, int]
    groups_left_out: int
    new_groups: int
    newcomers_left_out: Mapping[str, int]
    """How many of these are without `alerts`, and without `verdicts`."""
    alerts: Mapping[Identity, int]
    """Open problems by rule and severity."""
    sinks: Sequence[SinkStatus]
    disks: Sequence[DiskSpace]
    version: str
    groups_by_type: Mapping[str, int]
    counts: Mapping[str, int]
    """What happened in all groups, see `GroupCache.counts`."""


def _record_name(number: int) -> str:
    known = record(number)
    return known.name if known else str(number) if number >= 0 else "none"


def _of_offsets(value: Callable[[OffsetsStatus], float | None]) -> Callable[[JobScrape], float | None]:
    """Return the value of a metric about the stream of committed offsets: none while the job does not read these."""
    return lambda job: None if job.status.offsets is None else value(job.status.offsets)


def _behind(job: JobScrape) -> Iterator[Sample]:
    yield from (Sample(count, (str(partition),)) for partition, count in sorted(job.totals.behind.items()))


JOB_METRICS: tuple[Metric[JobScrape], ...] = (
    Metric(
        "streams_groups",
        "All groups of the cluster by state, including groups without series of their own.",
        lambda job: [Sample(job.groups_by_state.get(state, 0), (state,)) for state in _STATES],
        ("state",),
    ),
    Metric(
        "streams_groups_by_protocol",
        "All groups of the cluster by the protocol that they use, with groups of other types; absent without `lag`.",
        lambda job: [Sample(count, (name,)) for name, count in sorted(job.groups_by_type.items())],
        ("protocol",),
    ),
    Metric(
        "streams_groups_rebalances_total",
        "New target assignments of all groups since the job started, including groups without series of their own. The "
        "brokers' streams-group-rebalance-count counts joins, and changes of members, topics and configs, and not the "
        "members that leave or are removed.",
        lambda job: job.counts.get(REBALANCE, 0),
    ),
    Metric(
        "streams_groups_description_calls_total",
        "What the records say of calls of the brokers' description plugin since the job started: `begun`, `stored`, "
        "`rejected` for good, and `removed` with a group or by the cleanup. One that fails for now leaves "
        "only its beginning, and only the first time.",
        lambda job: [Sample(job.counts.get(result, 0), (result,)) for result in CALLS],
        ("result",),
    ),
    Metric(
        "streams_groups_series_dropped",
        "Groups that match `metrics.groups` but have no series of their own because of `metrics.max_groups`, or since "
        "their id has more than 500 characters.",
        lambda job: job.groups_left_out,
    ),
    Metric(
        "streams_groups_new",
        "Groups that were created in the last 24 hours.",
        lambda job: job.new_groups,
    ),
    Metric(
        "streams_groups_new_left_out",
        "Groups of the last 24 hours that come after older ones: how many have no `alerts` because of "
        "their limit of 100, and how many wait for their `verdicts`.",
        lambda job: [Sample(number, (what,)) for what, number in job.newcomers_left_out.items()],
        ("of",),
    ),
    Metric(
        "streams_groups_caught_up",
        "1 once the job has reached the end of the topic since its start.",
        lambda job: job.status.caught_up,
    ),
    Metric(
        "streams_groups_start_timestamp_seconds",
        "When the job started.",
        lambda job: unix_seconds(job.status.started_at),
    ),
    Metric(
        "streams_groups_last_success_timestamp_seconds",
        "When a batch was last completed, or the stream last found no new records; absent before.",
        lambda job: unix_seconds(job.status.last_success_at),
    ),
    Metric(
        "streams_groups_input_timestamp_seconds",
        "Until when each input is known, by the time of a batch or of a broker's answer: `groups`, `commits`, "
        "`descriptions`, and `log ends of broker 1` for each broker; absent before it is known first.",
        lambda job: [Sample(one.at.timestamp(), (one.name,)) for one in inputs(job.status) if one.at],
        ("input",),
    ),
    Metric(
        "streams_groups_brokers_answering",
        "1 while a broker responds, 0 while none does.",
        lambda job: job.status.brokers_away_since is None,
    ),
    Metric(
        "streams_groups_stream_failing",
        "1 while the stream has failed and has not completed a batch since.",
        lambda job: job.status.failing_since is not None,
    ),
    Metric(
        "streams_groups_stream_restarts_total",
        "Failures of the stream, which is restarted after each unless there are too many in a row.",
        lambda job: job.totals.restarts,
    ),
    *renamed(  # from a name one letter apart from that of a group's lag
        Metric(
            "streams_groups_behind_offsets",
            "Offsets between the tables and the end of the topic, by partition; absent before the first batch.",
            _behind,
            ("partition",),
        ),
        "streams_groups_lag_offsets",
    ),
    Metric(
        "streams_groups_offsets_behind",
        "Records of the topic that the stream of committed offsets has not read yet; absent without this stream.",
        _of_offsets(lambda offsets: offsets.behind),
    ),
    Metric(
        "streams_groups_offsets_last_success_timestamp_seconds",
        "When the stream of committed offsets last completed a batch, or found nothing new; absent before.",
        _of_offsets(lambda offsets: unix_seconds(offsets.last_success_at)),
    ),
    Metric(
        "streams_groups_offsets_stream_failing",
        "1 while the stream of committed offsets has failed and has not completed a batch since.",
        _of_offsets(lambda offsets: offsets.failing_since is not None),
    ),
    Metric(
        "streams_groups_batches_total",
        "Completed batches.",
        lambda job: job.totals.batches,
    ),
    Metric(
        "streams_groups_batch_duration_seconds",
        "Duration of the completed batches.",
        lambda job: [
            Sample(job.totals.batches, suffix="_count"),
            Sample(job.totals.batch_seconds_sum, suffix="_sum"),
        ],
        is_summary=True,
    ),
    Metric(
        "streams_groups_batch_phase_seconds_total",
        "Duration of all batches by what they did: "
        + "; ".join(f"{name}: {about}" for name, about in PHASES.items())
        + ".",
        lambda job: [Sample(job.totals.phase_seconds.get(name, 0.0), (name,)) for name in PHASES],
        ("phase",),
    ),
    Metric(
        "streams_groups_last_batch_duration_seconds",
        "Duration of the last completed batch.",
        lambda job: job.totals.last_batch_seconds,
    ),
    Metric(
        "streams_groups_records_seen_total",
        "Records of every type that the job has read, including offset commits.",
        lambda job: job.totals.records_seen,
    ),
    Metric(
        "streams_groups_records_total",
        "Records that may belong to streams groups, by name of the record type, or its number if it has no name; "
        "`none` for records without a key.",
        lambda job: [
            Sample(count, (_record_name(number),)) for number, count in sorted(job.totals.records_by_type.items())
        ],
        ("type",),
    ),
    Metric(
        "streams_groups_quarantined_records_total",
        "Records that could not be decoded and were written to `quarantine`.",
        lambda job: job.totals.quarantined,
    ),
    Metric(
        "streams_groups_unknown_tags_records_total",
        "Records with tagged fields that this release does not know.",
        lambda job: job.totals.drifted,
    ),
    Metric(
        "streams_groups_log_truncated_timestamp_seconds",
        "When it was last found that an unclean election cut the log below what was read; absent if never.",
        lambda job: unix_seconds(job.status.truncated_at),
    ),
    Metric(
        "streams_groups_self_check_runs_total",
        "Comparisons of the tables with the brokers, including those that could not be completed.",
        lambda job: job.status.self_check.runs,
    ),
    Metric(
        "streams_groups_self_check_failures_total",
        "Comparisons of the tables with the brokers that could not be completed, such as for a missing ACL.",
        lambda job: job.status.self_check.failures,
    ),
    Metric(
        "streams_groups_self_check_last_run_timestamp_seconds",
        "When a comparison of the tables with the brokers was last completed; absent before.",
        lambda job: unix_seconds(job.status.self_check.last_run_at),
    ),
    Metric(
        "streams_groups_self_check_differing_groups",
        "Groups whose row differed from what the brokers describe, as of the last comparison.",
        lambda job: job.status.self_check.differing,
    ),
    Metric(
        "streams_groups_self_check_repaired_groups_total",
        "Groups that were read again because they differed from what the brokers describe.",
        lambda job: job.status.self_check.repaired,
    ),
    Metric(
        "streams_groups_alerts",
        "Open problems, by rule and severity.",
        lambda job: [Sample(count, labels) for labels, count in sorted(job.alerts.items())],
        ("rule", "severity"),
    ),
    Metric(
        "streams_groups_notifications_total",
        "Notifications by sink; the result is `sent`, or `failed` for each failed attempt.",
        lambda job: [
            Sample(count, (sink.name, result))
            for sink in job.sinks
            for result, count in (("sent", sink.sent), ("failed", sink.failed))
        ],
        ("sink", "result"),
    ),
    Metric(
        "streams_groups_notifications_waiting",
        "Notifications not sent yet, by sink.",
        lambda job: [Sample(sink.waiting, (sink.name,)) for sink in job.sinks],
        ("sink",),
    ),
    Metric(
        "streams_groups_notifications_last_success_timestamp_seconds",
        "When the sink last accepted a notification; absent before.",
        lambda job: [
            Sample(sink.last_success_at.timestamp(), (sink.name,)) for sink in job.sinks if sink.last_success_at
        ],
        ("sink",),
    ),
    Metric(
        "streams_groups_disk_free_bytes",
        "What is free of the disk of the warehouse, and of the state directory, where they are local.",
        lambda job: [Sample(disk.free, (disk.path,)) for disk in job.disks],
        ("path",),
    ),
    Metric(
        "streams_groups_disk_size_bytes",
        "The size of that disk.",
        lambda job: [Sample(disk.size, (disk.path,)) for disk in job.disks],
        ("path",),
    ),
    Metric(
        "streams_groups_build_info",
        "The running release.",
        lambda job: [Sample(1, (job.version,))],
        ("version",),
    ),
)

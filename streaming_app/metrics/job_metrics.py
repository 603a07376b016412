"""The metrics of the job and of the cluster as a whole. Data, and where the values come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from schemas.records_loader import record
from streaming_app.core.facts import JobFacts
from streaming_app.core.states import STATES
from streaming_app.job.health import Counted
from streaming_app.metrics.metric import Metric, Sampled, seconds, value

LIVING = tuple(state for state in STATES if state != "Dead")


class SinkCounts(Protocol):
    """How a sink of notifications is doing, since the start: `streaming_app.alerts.sender.SinkStatus`."""

    @property
    def name(self) -> str:
        """The sink's name."""

    @property
    def sent(self) -> int:
        """Notifications that it took."""

    @property
    def failed(self) -> int:
        """Tries that failed."""

    @property
    def waiting(self) -> int:
        """Notifications not sent yet."""

    @property
    def last_success_at(self) -> datetime | None:
        """When it last took one."""


class OfJob(NamedTuple):
    """What a scrape knows of the job and the cluster."""

    facts: JobFacts
    counted: Counted
    groups_by_state: Mapping[str, int]
    groups_left_out: int
    alerts: Mapping[tuple[str, str, str], int]
    """Open alerts by rule, severity and state."""
    sinks: Sequence[SinkCounts]
    version: str


def _record_name(number: int) -> str:
    known = record(number)
    return known.name if known else str(number) if number >= 0 else "none"


JOB_METRICS: tuple[Metric[OfJob], ...] = (
    Metric(
        "streams_groups",
        "gauge",
        "Groups by state, all of the cluster, also those without series of their own.",
        lambda job: [Sampled(job.groups_by_state.get(state, 0), (state,)) for state in LIVING],
        ("state",),
    ),
    Metric(
        "streams_groups_series_dropped",
        "gauge",
        "Groups that `metrics.groups` allows and that have no series of their own because of `metrics.max_groups`.",
        value(lambda job: job.groups_left_out),
    ),
    Metric(
        "streams_groups_caught_up",
        "gauge",
        "1 once the job has been at the end of the topic since its start.",
        value(lambda job: job.facts.caught_up),
    ),
    Metric(
        "streams_groups_start_timestamp_seconds",
        "gauge",
        "When the job started.",
        value(lambda job: seconds(job.facts.started_at)),
    ),
    Metric(
        "streams_groups_last_success_timestamp_seconds",
        "gauge",
        "When a batch last ended well, or the stream last found nothing new; absent before.",
        value(lambda job: seconds(job.facts.last_success_at)),
    ),
    Metric(
        "streams_groups_brokers_answering",
        "gauge",
        "1 while a broker answers, 0 while none does.",
        value(lambda job: job.facts.brokers_away_since is None),
    ),
    Metric(
        "streams_groups_stream_failing",
        "gauge",
        "1 while the stream has failed and has not ended a batch well since.",
        value(lambda job: job.facts.failing_since is not None),
    ),
    Metric(
        "streams_groups_stream_restarts_total",
        "counter",
        "Failures of the stream, after each of which it is started again, unless they are too many in a row.",
        value(lambda job: job.counted.restarts),
    ),
    Metric(
        "streams_groups_lag_offsets",
        "gauge",
        "Offsets between what is in the tables and the end of the topic, by partition; absent before the first batch.",
        lambda job: [Sampled(count, (str(partition),)) for partition, count in sorted(job.counted.behind.items())],
        ("partition",),
    ),
    Metric(
        "streams_groups_batches_total",
        "counter",
        "Batches that ended well.",
        value(lambda job: job.counted.batches),
    ),
    Metric(
        "streams_groups_batch_duration_seconds",
        "summary",
        "How long the batches took that ended well.",
        lambda job: [
            Sampled(job.counted.batches, suffix="_count"),
            Sampled(job.counted.batch_seconds_sum, suffix="_sum"),
        ],
    ),
    Metric(
        "streams_groups_last_batch_duration_seconds",
        "gauge",
        "How long the newest batch took that ended well.",
        value(lambda job: job.counted.last_batch_seconds),
    ),
    Metric(
        "streams_groups_records_seen_total",
        "counter",
        "Records of every kind that the job has read, offset commits included.",
        value(lambda job: job.counted.records_seen),
    ),
    Metric(
        "streams_groups_records_total",
        "counter",
        "Records that may be of streams groups, by the name of the record type; the number of one without, and `none` "
        "for records without a key.",
        lambda job: [
            Sampled(count, (_record_name(number),)) for number, count in sorted(job.counted.records_by_type.items())
        ],
        ("type",),
    ),
    Metric(
        "streams_groups_quarantined_records_total",
        "counter",
        "Records that could not be decoded and were put into `quarantine`.",
        value(lambda job: job.counted.quarantined),
    ),
    Metric(
        "streams_groups_unknown_tags_records_total",
        "counter",
        "Records with tagged fields that this release does not know.",
        value(lambda job: job.counted.drifted),
    ),
    Metric(
        "streams_groups_alerts",
        "gauge",
        "Open alerts of the job's own rules; the state is `pending` or `firing`.",
        lambda job: [Sampled(count, labels) for labels, count in sorted(job.alerts.items())],
        ("rule", "severity", "state"),
    ),
    Metric(
        "streams_groups_notifications_total",
        "counter",
        "Notifications by sink; the result is `sent`, or `failed` for each try that failed.",
        lambda job: [
            Sampled(count, (sink.name, result))
            for sink in job.sinks
            for result, count in (("sent", sink.sent), ("failed", sink.failed))
        ],
        ("sink", "result"),
    ),
    Metric(
        "streams_groups_notifications_waiting",
        "gauge",
        "Notifications not sent yet, by sink.",
        lambda job: [Sampled(sink.waiting, (sink.name,)) for sink in job.sinks],
        ("sink",),
    ),
    Metric(
        "streams_groups_notifications_last_success_timestamp_seconds",
        "gauge",
        "When the sink last took a notification; absent before.",
        lambda job: [
            Sampled(sink.last_success_at.timestamp(), (sink.name,)) for sink in job.sinks if sink.last_success_at
        ],
        ("sink",),
    ),
    Metric(
        "streams_groups_build_info",
        "info",
        "The release that runs.",
        lambda job: [Sampled(1, (job.version,))],
        ("version",),
    ),
)

"""The metrics of the job and of the whole cluster. Only definitions: name, help, labels, value."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from offsets_decoder.definitions import record
from streaming_app.alerts.alert import FIRING, Alert
from streaming_app.groups.group import STREAMS
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import DEAD, STATES
from streaming_app.groups.task_copies import CopiesSum
from streaming_app.health.verdict import Verdict
from streaming_app.job_status import JobStatus, SinkStatus, StreamStatus, inputs
from streaming_app.lag.model import LagRow
from streaming_app.metrics.metric import Metric, Sample, has_short_id, unix_seconds
from streaming_app.stream.job_state import Totals

_STATES = tuple(state for state in STATES if state != DEAD)
_STREAMS = "by stream: `groups`, and `offsets` (committed offsets) unless `offsets.enabled` is false"


@dataclass(frozen=True)
class JobScrape:
    """The state of the job, the cluster and its groups at a scrape."""

    cluster: str
    groups: Mapping[str, GroupSnapshot]
    status: JobStatus
    totals: Totals
    alerts: Iterable[Alert] = ()
    is_muted: Callable[[Alert], object] = lambda _one: None
    sinks: Sequence[SinkStatus] = ()
    lag: Sequence[LagRow] | None = None
    """The rows of the newest lag pass; None before the first one, or without `lag`."""
    copies: Mapping[str, Mapping[str, CopiesSum]] = field(default_factory=dict)
    """Group id -> role -> the sums over the copies of its tasks."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    types: Mapping[str, int] = field(default_factory=dict)
    """Type -> number of groups; empty while it is not known."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What is omitted, such as `alerts` -> number of groups for which it is omitted."""
    rebalances_total: Callable[[str], int] = lambda _group_id: 0
    labels_of: Callable[[str], Mapping[str, str]] = lambda _group_id: {}


def _record_name(number: int) -> str:
    known = record(number)
    return known.name if known else str(number) if number >= 0 else "none"


def _of_streams(value: Callable[[StreamStatus], float | None]) -> Callable[[JobScrape], Iterator[Sample]]:
    return lambda job: (
        Sample(value(status), (name,))
        for name, status in (("groups", job.status), ("offsets", job.status.offsets))
        if status is not None
    )


def _behind(job: JobScrape) -> Iterator[Sample]:
    yield from (Sample(count, ("groups", str(partition))) for partition, count in sorted(job.totals.behind.items()))
    if job.status.offsets is not None:
        yield Sample(job.status.offsets.behind, ("offsets", ""))


def _by_state(job: JobScrape) -> Iterator[Sample]:
    counts = Counter(group.state for group in job.groups.values() if group.protocol == STREAMS)
    yield from (Sample(counts[state], (state,)) for state in _STATES)


def _open_alerts(job: JobScrape) -> Iterator[Sample]:
    counts = Counter((one.rule, one.severity) for one in job.alerts if one.state == FIRING)
    yield from (Sample(count, labels) for labels, count in sorted(counts.items()))


def alerts_with_series(job: JobScrape, limit: int) -> tuple[list[Alert], int]:
    """Return the open alerts that have series, the most urgent first, and how many have none."""
    found = [one for one in job.alerts if one.state == FIRING]
    short = [one for one in found if has_short_id(one.group_id or "")]
    shown = nsmallest(limit, short, key=lambda one: one.urgency)
    return shown, len(found) - len(shown)


def _of_alerts(value: Callable[[Alert], float | None]) -> Callable[[JobScrape], Iterator[Sample]]:
    return lambda job: (
        Sample(value(one), (one.group_id or "", one.rule, one.severity, "true" if job.is_muted(one) else "false"))
        for one in job.alerts
        if one.state == FIRING
    )


ALERT_METRICS: tuple[Metric[JobScrape], ...] = (
    Metric(
        "streams_group_alert",
        "1 for each open alert, as `streams-groups alerts` shows them; `group` is empty for rules about the job. The "
        "severity is the worst so far. `muted`: it is recorded, but not sent. Prometheus' rules read this metric.",
        _of_alerts(lambda _one: 1),
        ("group", "rule", "severity", "muted"),
    ),
    Metric(
        "streams_group_alert_since_timestamp_seconds",
        "Time since when the condition of the alert holds, by the records and commits.",
        _of_alerts(lambda one: unix_seconds(one.since)),
        ("group", "rule", "severity", "muted"),
    ),
)

JOB_METRICS: tuple[Metric[JobScrape], ...] = (
    Metric(
        "streams_groups",
        "All streams groups of the cluster by state, including groups without series of their own.",
        _by_state,
        ("state",),
    ),
    Metric(
        "streams_groups_by_protocol",
        "Groups of other types, by protocol; absent without `lag`.",
        lambda job: [Sample(count, (name,)) for name, count in sorted(job.types.items()) if name != "streams"],
        ("protocol",),
    ),
    Metric("streams_groups_alerts", "Open alerts, by rule and severity.", _open_alerts, ("rule", "severity")),
    Metric(
        "streams_groups_left_out",
        "Groups for which something is omitted. `series`: there are more groups than `metrics.max_groups`, or the id "
        "has more than 500 characters. `lag`: there are too many series of lag. `alert_series`: open alerts beyond the "
        "1,000 most urgent ones, or with such an id. Only for groups of the last 24 hours: "
        "`alerts`, because of the limit of 100 new groups, and `verdicts`, which are not computed yet.",
        lambda job: [Sample(number, (what,)) for what, number in job.left_out.items()],
        ("of",),
    ),
    Metric(
        "streams_groups_job_caught_up",
        "1 once the job has reached the end of the topic since its start.",
        lambda job: job.status.caught_up,
    ),
    Metric(
        "streams_groups_job_brokers_answering",
        "1 while a broker responds, 0 while none does.",
        lambda job: job.status.brokers_away_since is None,
    ),
    Metric(
        "streams_groups_job_behind_offsets",
        f"Offsets of the topic that are not read yet, {_STREAMS}. `groups` has one series per partition, absent before "
        "its first batch.",
        _behind,
        ("stream", "partition"),
    ),
    Metric(
        "streams_groups_job_last_success_timestamp_seconds",
        f"Time of the last completed batch, or of the last check that found nothing new, {_STREAMS}; absent before.",
        _of_streams(lambda status: unix_seconds(status.last_success_at)),
        ("stream",),
    ),
    Metric(
        "streams_groups_job_stream_failing",
        f"1 from a failure until the next completed batch, {_STREAMS}.",
        _of_streams(lambda status: status.failing_since is not None),
        ("stream",),
    ),
    Metric(
        "streams_groups_job_input_timestamp_seconds",
        "Time up to which each input is known, by its last batch or broker answer: `groups`, `commits`, "
        "`descriptions`, and `log ends of broker 1` for each broker; absent before the first one.",
        lambda job: [Sample(one.at.timestamp(), (one.name,)) for one in inputs(job.status) if one.at],
        ("input",),
    ),
    Metric(
        "streams_groups_job_batches_total", "Completed batches of the stream of groups.", lambda job: job.totals.batches
    ),
    Metric(
        "streams_groups_job_batch_seconds_total",
        "Duration of the completed batches of the stream of groups.",
        lambda job: job.totals.batch_seconds_sum,
    ),
    Metric(
        "streams_groups_job_records_read_total",
        "Records of every type that the job has read, including offset commits.",
        lambda job: job.totals.records_seen,
    ),
    Metric(
        "streams_groups_job_group_records_total",
        "Records that may belong to streams groups, by the name of the record type, or its number if it has no name; "
        "`none` for records without a key.",
        lambda job: [
            Sample(count, (_record_name(number),)) for number, count in sorted(job.totals.records_by_type.items())
        ],
        ("type",),
    ),
    Metric(
        "streams_groups_job_quarantined_records_total",
        "Records that could not be decoded and were written to `quarantine`, without those of unknown types.",
        lambda job: job.totals.quarantined,
    ),
    Metric(
        "streams_groups_job_unknown_tags_records_total",
        "Records with tagged fields that this release does not know.",
        lambda job: job.totals.drifted,
    ),
    Metric(
        "streams_groups_job_notifications_total",
        "Notifications by sink: `sent`, or `failed` for each failed attempt.",
        lambda job: [
            Sample(count, (sink.name, result))
            for sink in job.sinks
            for result, count in (("sent", sink.sent), ("failed", sink.failed))
        ],
        ("sink", "result"),
    ),
    Metric(
        "streams_groups_job_notifications_waiting",
        "Notifications not sent yet, by sink.",
        lambda job: [Sample(sink.waiting, (sink.name,)) for sink in job.sinks],
        ("sink",),
    ),
)

"""Data for metrics: some groups, the health of a job, alerts and a sink."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.alerts.alert import FIRING, PENDING, Alert
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.task_copies import CopiesSum
from streaming_app.health.verdict import Verdict
from streaming_app.job_status import SinkStatus
from streaming_app.metrics.job_metrics import JobScrape
from streaming_app.stream.job_state import CommittedBatch, JobState
from streaming_app.stream.log_positions import Cut
from tests.alerts.examples import make_alert
from tests.support.healthy_group import healthy_group

NOW = datetime.now(timezone.utc)
SINCE = NOW - timedelta(minutes=10)


def group(group_id: str, state: str = "Stable", **fields: Any) -> GroupSnapshot:
    values = {
        "group_id": group_id,
        "state": state,
        "assignment_epoch": 6,
        "topology_epoch": 3,
        "validated_topology_epoch": 3,
        "stored_description_epoch": 3,
        "description_stale_since": SINCE,
        "member_count": 4,
        "stale_member_count": 1,
        "last_offset": 99,
    }
    return replace(healthy_group(SINCE), **{**values, **fields})


def batch(behind: int = 0, **fields: Any) -> CommittedBatch:
    values: dict[str, Any] = {
        "seen": 1_000,
        "seconds": 2.5,
        "by_type": {17: 20, 23: 5, 24: 1, -1: 2},
        "quarantined": 3,
        "drifted": 4,
        "behind": {0: behind, 1: 0},
    }
    return CommittedBatch(**(values | fields))


def busy_health(behind: int = 0) -> JobState:
    """Return the health of a job that failed once, and has completed two batches since."""
    health = JobState(JobState())
    assert health.offsets
    health.offsets.batch_done(batch(behind + 1, quarantined=0, drifted=0))
    health.offsets.failed("another cause")
    health.failed("the cause")
    health.log_cut(Cut("__consumer_offsets", 3, 120, 180, 7, 9, NOW.isoformat()))
    health.batch_done(batch())
    health.batch_done(batch(behind))
    return health


def alert(rule: str, state: str, group_id: str | None = None) -> Alert:
    return make_alert(rule=rule, group_id=group_id, opened_at=SINCE if state == FIRING else None)


def scraped(groups: Iterable[GroupSnapshot], health: JobState | None = None, **fields: Any) -> Callable[[], JobScrape]:
    """Return what gives a scrape of these groups; `fields` are those of it, `alerts` may be called for them."""
    health = health or busy_health()
    alerts = [
        alert("StreamsGroupNotReady", FIRING, "b"),
        alert("StreamsGroupNotReady", FIRING, "c"),
        alert("StreamsGroupsJobBehind", PENDING),
    ]
    values: dict[str, Any] = {
        "groups": {group.group_id: group for group in groups},
        "sinks": (SinkStatus("pager", sent=5, failed=2, waiting=1), SinkStatus("mail")),
        "copies": {
            "a": {
                "restoring": CopiesSum(2, 900, ready_at=NOW + timedelta(hours=1)),
                "standby": CopiesSum(3, 60, 1, 1),
                "warmup": CopiesSum(2, 5_000),
            },
            "b": {"restoring": CopiesSum(), "standby": CopiesSum(), "warmup": CopiesSum()},
        },
        "verdicts": {"a": Verdict("Down", SINCE, SINCE, "no members", "critical")},
        "left_out": {"alerts": 7, "verdicts": 0},
        "types": {"streams": 3, "classic": 40},
        "rebalances_total": lambda group_id: 6 if group_id == "a" else 0,
    }
    of_alerts = fields.pop("alerts", lambda: alerts)

    def scrape() -> JobScrape:
        return JobScrape("prod", status=health.status, totals=health.totals, alerts=of_alerts(), **(values | fields))

    return scrape

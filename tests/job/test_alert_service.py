"""The service of the alerts as it is wired: a real table, real threads, the engine; sinks that keep what they get."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, Delivery
from streaming_app.alerts.engine_facts import DescriptionSupport, EngineSettings, Observed
from streaming_app.groups.snapshot import COLUMNS, GroupSnapshot, group_snapshot
from streaming_app.health import board
from streaming_app.health.facts import Facts
from streaming_app.health.judge import judge
from streaming_app.health.verdict import Verdict
from streaming_app.job import alert_service
from streaming_app.job.alert_service import AlertService
from streaming_app.job_status import JobStatus, SinkStatus
from streaming_app.notify.message import OLD_ALERTS
from streaming_app.notify.sink import SinkError
from streaming_app.tables.alerts_table import AlertsTable
from streaming_app.tables.health_tables import EndedAlerts, HealthTable
from tests.alerts.examples import make_rule
from tests.notify.sending import Often
from tests.support.a_job import a_job
from tests.support.waiting import wait_until
from tests.support.warehouses import make_warehouse

pytestmark = pytest.mark.slow

NOW = datetime.now(timezone.utc)
RULE = "StreamsGroupDescriptionFailed"
SETTINGS = {RULE: make_rule("warning", 0)}


class KeepingSink:
    """Keeps what it gets, alone or with others; while `open` is not set, it waits, and while `down`, it refuses."""

    is_read_by_people, resend_seconds, gets_alerts = True, None, True

    def __init__(self, name: str = "page") -> None:
        self.name = name
        self.sent: list[tuple[str, list[Alert]]] = []
        self.open = threading.Event()
        self.open.set()
        self.down = False

    def send(self, alerts: Sequence[Alert], event: str) -> None:
        self.open.wait()
        if self.down:
            raise SinkError("down", retry=True)
        self.sent.append((event, list(alerts)))

    def events(self) -> list[str]:
        return [event for event, _ in self.sent]


class Harness:
    """A service about groups that the test sets; it can be stopped and started again, or be killed."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.runs, self.is_broken = path, list[str](), 0, False
        self.groups: Mapping[str, GroupSnapshot] = {}
        self.job = JobStatus(NOW, caught_up=True)
        self.settings: Mapping[str, Any] = SETTINGS
        self.labels: Mapping[str, str] = {}
        self.sinks: Sequence[KeepingSink] = (KeepingSink(),)
        self.service: AlertService

    @property
    def sink(self) -> KeepingSink:
        return self.sinks[0]

    def start(self) -> None:
        engine = EngineSettings("default", lambda _group: self.settings, labels_of=lambda _group: self.labels)
        job = a_job(self.path, self.lines.append, {"alerts": {"interval": 0.05}})
        job = replace(job, config=job.config.model_copy(update={"sinks": self.sinks}))
        self.service = AlertService(job, engine, self.observe, DescriptionSupport("always"))
        self.service.start()

    def observe(self, failing: Sequence[SinkStatus]) -> Observed:
        self.runs += 1
        snapshots = self.groups  # first: a test breaks the groups before it changes them
        if self.is_broken:
            raise OSError("No space left on device")
        return Observed(snapshots, job=replace(self.job, failing_sinks=failing))

    def restart(self, *sinks: KeepingSink) -> None:
        self.stop()
        self.sinks = sinks or self.sinks
        self.start()

    def stop(self) -> None:
        self.service.end(0)

    def alert(self) -> Alert:
        """Return the newest alert of the table."""
        return self.stored()[-1]

    def stored(self) -> list[Alert]:
        return AlertsTable(self.path, "default").alerts()


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setattr(alert_service, "Outbox", Often)
    started = Harness(make_warehouse(tmp_path))
    started.start()
    yield started
    for sink in started.sinks:
        sink.open.set()
    started.stop()


def failed_group(group_id: str = "g") -> GroupSnapshot:
    state = {"group_id": group_id, "group_type": "streams", "state": "Stable"}
    nulls = dict.fromkeys(COLUMNS) | {"description_since": NOW - timedelta(minutes=9)}
    numbers = {"unsolicited_pushes": 0, "member_count": 1, "stale_member_count": 0, "solicitable": False}
    return group_snapshot(nulls | numbers | state | {"description_status": "FAILED", "stored_description_epoch": -1})


def test_a_row_is_stored_before_its_notification_is_sent_and_a_restart_sends_the_rest_and_nothing_twice(
    harness: Harness,
) -> None:
    harness.sink.open.clear()
    harness.groups = {"g": failed_group()}
    assert wait_until(lambda: harness.service.sinks()[0].waiting == 1)
    assert [(alert.state, alert.deliveries) for alert in harness.stored()] == [(FIRING, (Delivery("page", FIRING),))]
    before = harness.sink
    harness.restart(KeepingSink())  # the attempt that has begun is abandoned, as by a kill
    assert wait_until(lambda: harness.sink.events() == [FIRING])
    assert wait_until(lambda: harness.alert().deliveries[0].sent_at is not None)
    harness.restart(KeepingSink())
    harness.groups = {}
    assert wait_until(lambda: harness.sink.events() != [])
    assert harness.sink.events() == [RESOLVED]
    assert len(harness.stored()) == 1
    before.open.set()


def test_labels_are_in_the_tables_and_a_start_with_others_rewrites_them(harness: Harness) -> None:
    harness.job = replace(harness.job, caught_up_at=datetime.now(timezone.utc))  # the groups are judged
    for labels in ({"team": "a"}, {"team": "b", "tier": "gold"}, {}):
        harness.labels = labels
        harness.restart()
        harness.groups = {"g": failed_group()}  # of which the service before has sent nothing
        harness.service.finish(600)
        (row,) = HealthTable(harness.path, "default").rows()
        assert row.labels == harness.alert().labels == labels
    assert harness.sink.events() == [FIRING]


def test_rows_that_could_not_be_stored_are_stored_with_what_came_of_them_since(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Sequence[Alert]] = []
    save = AlertsTable.save

    def fail(_self: AlertsTable, alerts: Sequence[Alert]) -> None:
        saved.append(alerts)
        raise OSError("No space left on device")

    monkeypatch.setattr(alert_service, "_RETRY_SECONDS", 0.2)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(AlertsTable, "save", fail)
        harness.groups = {"g": failed_group()}
        assert wait_until(lambda: harness.sink.events() == [FIRING])  # alerts are sent all the same
        assert wait_until(lambda: bool(saved and saved[-1][0].deliveries[0].sent_at))
        assert harness.stored() == []
    assert AlertsTable.save is save
    assert wait_until(lambda: harness.stored() != [])
    (alert,) = harness.stored()
    assert [delivery.sent_at is not None for delivery in alert.deliveries] == [True]
    assert harness.lines == ["alerts: No space left on device; trying again"]
    harness.restart()
    harness.service.finish(600)
    assert harness.sink.events() == [FIRING]


def test_an_evaluation_that_fails_is_reported_once_though_results_of_sinks_are_stored_meanwhile_and_goes_on(
    harness: Harness,
) -> None:
    harness.sink.down = True
    harness.groups = {"g": failed_group()}
    assert wait_until(lambda: harness.service.sinks()[0].failed > 0)
    harness.is_broken = True
    harness.groups = {}
    assert wait_until(lambda: harness.service.failures > 0)
    failed = harness.service.sinks()[0].failed
    assert wait_until(lambda: harness.service.failures > 5 and harness.service.sinks()[0].failed > failed + 5)
    assert harness.lines.count("alerts: No space left on device; trying again") == 1
    assert harness.stored()[0].state == FIRING
    harness.is_broken = False
    assert wait_until(lambda: harness.stored()[0].state == RESOLVED)


def test_a_group_that_cannot_be_judged_is_named_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(facts: Facts) -> Verdict:
        if facts.group.group_id == "bad":
            raise ValueError("why")
        return judge(facts)

    monkeypatch.setattr(board, "judge", fails)
    harness.job = replace(harness.job, caught_up_at=NOW + timedelta(days=1))
    for n in range(3):  # each time with other facts
        harness.groups = {one: replace(failed_group(one), last_offset=n) for one in ("bad", "good")}
        runs = harness.runs
        assert wait_until(lambda runs=runs: harness.runs > runs + 2)
    assert harness.service.verdicts().keys() == {"bad", "good"}
    line = "alerts: no verdict on 1 group, the others go on: bad. The verdict cannot be decided: ValueError: why"
    assert harness.lines.count(line) == 1


def test_a_sink_that_cannot_deliver_is_an_alert_through_the_others(harness: Harness) -> None:
    rule = make_rule("critical", 0)
    harness.settings = {**SETTINGS, "StreamsGroupsNotificationsFailing": rule}
    broken, other = KeepingSink("pager"), KeepingSink("chat")
    broken.down = True
    harness.restart(broken, other)
    harness.groups = {"g": failed_group()}
    assert wait_until(lambda: len(other.sent) == 2)
    sent = {one.group_id: one.summary for _, (one,) in other.sent}  # both may be due before the first is sent
    assert sent.keys() == {"g", None}
    assert sent[None] == "Alerts cannot be sent to pager: down"
    broken.down = False
    assert wait_until(lambda: other.events() == [FIRING, FIRING, RESOLVED])


def test_what_was_wrong_long_before_the_first_start_is_one_message_and_so_is_its_end_also_if_a_person_ends_it(
    harness: Harness,
) -> None:
    long_ago, names = NOW - timedelta(days=3), [f"old-{number}" for number in range(200)]
    harness.settings = {"StreamsGroupDown": make_rule("critical", 0), **SETTINGS}

    def told() -> list[tuple[str, str, str | None]]:
        """Let the service send all that is due, start it again, and return what the sink got."""
        harness.job = replace(harness.job, caught_up_at=datetime.now(timezone.utc))  # the groups are judged
        harness.service.finish(600)
        harness.start()
        return [(event, one.rule, one.group_id) for event, sent in harness.sink.sent for one in sent]

    down = {
        "state": "NotReady",
        "state_since": long_ago,
        "first_seen_at": long_ago,
        "description_status": "NO_TOPOLOGY",
    }
    harness.groups = {name: replace(failed_group(name), **down) for name in names}
    begun = [(FIRING, OLD_ALERTS, None)]
    assert told() == told() == begun
    (_, (one,)) = harness.sink.sent[0]
    assert one.summary.startswith("200 groups have had alerts since long before the job first started (200 ")
    named = one.evidence["StreamsGroupDown"]
    assert (len(named), named[-1]) == (51, "and 150 more")
    harness.groups = {**harness.groups, "new": failed_group("new")}
    assert told() == told() == (begun := [*begun, (FIRING, RULE, "new")])
    open_ones = [one.alert_id for one in harness.stored() if one.state == FIRING and one.group_id in names]
    version = DeltaTable(harness.path / "alerts").version()
    EndedAlerts(harness.path, "default").end(open_ones, "planned", "me", NOW)
    assert wait_until(lambda: sum(one.state == FIRING for one in harness.stored()) == 1)
    assert DeltaTable(harness.path / "alerts").version() == version + 1
    assert told() == told() == [*begun, (RESOLVED, OLD_ALERTS, None)]
    assert sum(one.state == FIRING for one in harness.stored()) == 1, "what a person ended stays so"

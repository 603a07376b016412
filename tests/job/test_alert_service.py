from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, Delivery
from streaming_app.alerts.description_support import DescriptionSupport
from streaming_app.alerts.evaluate import RULES
from streaming_app.alerts.history import GroupHistory
from streaming_app.alerts.lifecycle import NotifyPolicy
from streaming_app.groups.snapshot import COLUMNS, GroupSnapshot, group_snapshot
from streaming_app.job import alert_service
from streaming_app.job.alert_service import AlertEvaluator, EvaluatorConfig
from streaming_app.job_status import JobStatus
from streaming_app.notify.sink_worker import DeliveryCallback, SinkStatus
from streaming_app.tables.alerts_table import AlertsTable
from tests.waiting import wait_until

NOW = datetime.now(timezone.utc)
SETTINGS = {"StreamsGroupNotReady": RULES["StreamsGroupNotReady"].default_settings._replace(for_seconds=0)}


class FakeGroupCache:
    """Contains the groups that the test sets."""

    def __init__(self) -> None:
        self.snapshots: dict[str, GroupSnapshot] = {}
        self.broken = False

    def refresh(self) -> None:
        if self.broken:
            raise OSError("No space left on device")

    def groups(self) -> dict[str, GroupSnapshot]:
        return self.snapshots

    def histories(self) -> dict[str, GroupHistory]:
        return {}


class FakeNotifier:
    """Keeps the alerts that it is offered; the test reports the deliveries."""

    def __init__(self, on_delivery: DeliveryCallback) -> None:
        self.offered: list[Alert] = []
        self._on_delivery = on_delivery

    def on_delivery(self, fingerprint: str, delivery: Delivery) -> None:
        self._on_delivery([(fingerprint, delivery)])

    def settle(self, alerts: tuple[Alert, ...]) -> tuple[Alert, ...]:
        return alerts

    def offer(self, alerts: tuple[Alert, ...]) -> None:
        self.offered += alerts

    def status(self) -> tuple[SinkStatus, ...]:
        return ()

    def flush(self, timeout: float) -> bool:
        return timeout > 0

    def close(self, timeout: float) -> None:
        pass


class EvaluatorHarness:
    """An evaluator of groups that the test sets; it can be stopped and started again."""

    def __init__(self, path: Path) -> None:
        self.path, self.cache, self.lines = path, FakeGroupCache(), []
        self.job = JobStatus(NOW, caught_up=True)
        self.sinks: tuple[str, ...] = ("page",)
        self.settings = SETTINGS
        self.notifier: FakeNotifier
        self.evaluator: AlertEvaluator

    def start(self) -> None:
        config = EvaluatorConfig(
            "default", 0.05, lambda _group: self.settings, NotifyPolicy(self.sinks), DescriptionSupport("never"), 30
        )

        def make_notifier(on_delivery: DeliveryCallback) -> FakeNotifier:
            self.notifier = FakeNotifier(on_delivery)
            return self.notifier

        store = AlertsTable(self.path, "default")
        cache: Any = self.cache
        self.evaluator = AlertEvaluator(config, cache, store, lambda: self.job, make_notifier, self.lines.append)
        self.evaluator.start()

    def stop(self) -> None:
        self.evaluator.close(0)

    def offered(self, state: str) -> list[Alert]:
        return [alert for alert in self.notifier.offered if alert.state == state]

    def stored(self) -> list[Alert]:
        return AlertsTable(self.path, "default").alerts()


@pytest.fixture
def harness(empty_warehouse: Path) -> Iterator[EvaluatorHarness]:
    started = EvaluatorHarness(empty_warehouse)
    started.start()
    yield started
    started.stop()


def not_ready() -> GroupSnapshot:
    state = {"group_id": "g", "group_type": "streams", "state": "NotReady", "state_since": NOW - timedelta(minutes=9)}
    nulls = dict.fromkeys(COLUMNS)
    numbers = {"unsolicited_pushes": 0, "member_count": 1, "stale_member_count": 0, "solicitable": False}
    return group_snapshot(
        nulls | numbers | state | {"description_status": "NEVER_STORED", "stored_description_epoch": -1}
    )


def test_an_alert_is_stored_and_offered_once_when_it_fires_and_once_when_it_is_resolved(
    harness: EvaluatorHarness,
) -> None:
    harness.cache.snapshots = {"g": not_ready()}
    assert wait_until(lambda: harness.stored() != [])
    (fired,) = harness.offered(FIRING)
    harness.notifier.on_delivery(fired.fingerprint, Delivery("page", FIRING, NOW, 1))
    assert wait_until(lambda: harness.stored()[0].deliveries == (Delivery("page", FIRING, NOW, 1),))
    harness.cache.snapshots = {"g": replace(not_ready(), state="Stable")}
    assert wait_until(lambda: harness.stored()[0].state == RESOLVED)
    (resolved,) = harness.offered(RESOLVED)
    assert resolved.deliveries == (Delivery("page", FIRING, NOW, 1), Delivery("page", RESOLVED))
    assert harness.evaluator.open_alerts() == ()
    assert harness.lines == []


def test_a_restart_sends_what_was_not_sent_and_nothing_twice(harness: EvaluatorHarness) -> None:
    harness.cache.snapshots = {"g": not_ready()}
    assert wait_until(lambda: harness.stored() != [])
    (fired,) = harness.stored()
    harness.stop()  # as if killed between firing and sending
    harness.start()
    assert harness.notifier.offered[:1] == [fired]
    harness.notifier.on_delivery(fired.fingerprint, Delivery("page", FIRING, NOW, 1))
    assert wait_until(lambda: harness.stored()[0].deliveries[0].sent_at is not None)
    harness.stop()
    harness.start()
    assert [delivery.sent_at for alert in harness.notifier.offered for delivery in alert.deliveries] == [NOW]
    assert len(harness.stored()) == 1


def test_settings_that_leave_no_group_to_watch_are_reported_once(harness: EvaluatorHarness) -> None:
    harness.stop()
    harness.settings = {}
    harness.start()
    harness.cache.snapshots = {"g": not_ready()}
    assert wait_until(lambda: harness.lines != [])
    harness.evaluator.finish(1)
    (line,) = harness.lines
    assert line.startswith("alerts: of the 1 group none has a rule that is enabled: check groups, ignore_groups")


def test_nothing_fires_before_the_job_has_caught_up(harness: EvaluatorHarness) -> None:
    harness.job = replace(harness.job, caught_up=False)
    harness.cache.snapshots = {"g": not_ready()}
    harness.evaluator.finish(1)
    assert harness.stored() == []
    harness.start()
    harness.job = replace(harness.job, caught_up=True)
    assert wait_until(lambda: harness.stored() != [])


def test_a_table_that_cannot_be_written_is_reported_once_and_alerts_are_still_sent(
    harness: EvaluatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(alert_service, "_RETRY_SAVE_SECONDS", 0.2)
    with monkeypatch.context() as full_disk:
        full_disk.setattr(AlertsTable, "save", fail)
        harness.cache.snapshots = {"g": not_ready()}
        assert wait_until(lambda: harness.offered(FIRING) != [])
    assert wait_until(lambda: harness.stored() != [])
    assert harness.lines == ["alerts: No space left on device; trying again"]
    assert len(harness.offered(FIRING)) == 1


def test_evaluation_continues_after_groups_could_not_be_read(harness: EvaluatorHarness) -> None:
    harness.cache.snapshots = {"g": not_ready()}
    assert wait_until(lambda: harness.stored() != [])
    harness.cache.broken = True
    harness.cache.snapshots = {}
    assert wait_until(lambda: harness.lines != [])
    assert harness.stored()[0].state == FIRING
    harness.cache.broken = False
    assert wait_until(lambda: harness.stored()[0].state == RESOLVED)


def test_a_notification_due_to_a_sink_that_was_removed_is_dropped(harness: EvaluatorHarness) -> None:
    harness.cache.snapshots = {"g": not_ready()}
    assert wait_until(lambda: harness.stored() != [])
    harness.stop()
    harness.sinks = ("other",)
    harness.start()
    assert wait_until(lambda: harness.stored()[0].deliveries == ())


def test_what_will_never_be_sent_is_not_stored_as_due(harness: EvaluatorHarness) -> None:
    harness.notifier.settle = lambda alerts: tuple(replace(one, deliveries=()) for one in alerts)  # type: ignore[method-assign]
    harness.cache.snapshots = {"g": not_ready()}
    assert wait_until(lambda: harness.stored() != [])
    assert [alert.deliveries for alert in harness.stored()] == [()]


def test_the_results_of_one_message_are_stored_in_one_commit(harness: EvaluatorHarness) -> None:
    harness.cache.snapshots = {group: replace(not_ready(), group_id=group) for group in ("a", "b", "c")}
    assert wait_until(lambda: len(harness.stored()) == 3)
    before = DeltaTable(harness.path / "alerts").version()
    sent = Delivery("page", FIRING, NOW, 1)
    harness.notifier._on_delivery([(alert.fingerprint, sent) for alert in harness.offered(FIRING)])
    assert wait_until(lambda: all(alert.deliveries == (sent,) for alert in harness.stored()))
    assert DeltaTable(harness.path / "alerts").version() == before + 1

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from streaming_app.alerts import watch
from streaming_app.alerts.lane import SinkStatus
from streaming_app.alerts.store import AlertStore
from streaming_app.alerts.watch import Agreed, Watch
from streaming_app.core.alert import FIRING, RESOLVED, Alert, Delivery
from streaming_app.core.facts import COLUMNS, GroupFacts, JobFacts, group_facts
from streaming_app.core.lifecycle import Manner
from streaming_app.core.rules import RULES
from tests.waiting import wait_until

NOW = datetime.now(timezone.utc)
TERMS = {"StreamsGroupNotReady": RULES["StreamsGroupNotReady"].terms._replace(grace=0)}


class Groups:
    """A mirror of whatever the test puts there."""

    def __init__(self) -> None:
        self.facts: dict[str, GroupFacts] = {}
        self.broken = False

    def refresh(self) -> None:
        if self.broken:
            raise OSError("No space left on device")

    def groups(self) -> dict[str, GroupFacts]:
        return self.facts

    def all_rebalances(self) -> dict[str, tuple[datetime, ...]]:
        return {}


class Sent:
    """A sender that takes everything, and tells so when asked."""

    def __init__(self, done: Callable[[str, Delivery], None]) -> None:
        self.offered: list[Alert] = []
        self.done = done

    def offer(self, alerts: tuple[Alert, ...]) -> None:
        self.offered += alerts

    def status(self) -> tuple[SinkStatus, ...]:
        return ()

    def flush(self, timeout: float) -> bool:
        return timeout > 0

    def close(self, timeout: float) -> None:
        pass


class Scene:
    """A watch over groups of the test's making, that can be ended and begun again."""

    def __init__(self, path: Path) -> None:
        self.path, self.groups, self.lines = path, Groups(), []
        self.job = JobFacts(NOW, caught_up=True)
        self.sinks: tuple[str, ...] = ("page",)
        self.sent: Sent
        self.watch: Watch

    def begin(self) -> None:
        agreed = Agreed("default", 0.05, lambda _group: TERMS, Manner(self.sinks), lambda *_: None, 30)

        def sender(done: Callable[[str, Delivery], None]) -> Sent:
            self.sent = Sent(done)
            return self.sent

        store = AlertStore(self.path, "default")
        self.watch = Watch(agreed, self.groups, store, lambda: self.job, sender, self.lines.append)  # type: ignore[arg-type]
        self.watch.start()

    def end(self) -> None:
        self.watch.close(0)

    def offered(self, state: str) -> list[Alert]:
        return [alert for alert in self.sent.offered if alert.state == state]

    def stored(self) -> list[Alert]:
        return AlertStore(self.path, "default").alerts()


@pytest.fixture
def scene(empty_warehouse: Path) -> Iterator[Scene]:
    made = Scene(empty_warehouse)
    made.begin()
    yield made
    made.end()


def not_ready() -> GroupFacts:
    told = {"group_id": "g", "group_type": "streams", "state": "NotReady", "state_since": NOW - timedelta(minutes=9)}
    nothing = dict.fromkeys(COLUMNS)
    numbers = {"unsolicited_pushes": 0, "member_count": 1, "stale_member_count": 0, "solicitable": False}
    return group_facts(
        nothing | numbers | told | {"description_status": "NEVER_STORED", "stored_description_epoch": -1}
    )


def test_an_alert_is_stored_and_offered_once_when_it_fires_and_once_when_it_is_resolved(scene: Scene) -> None:
    scene.groups.facts = {"g": not_ready()}
    assert wait_until(lambda: scene.stored() != [])
    (fired,) = scene.offered(FIRING)
    scene.sent.done(fired.fingerprint, Delivery("page", FIRING, NOW, 1))
    assert wait_until(lambda: scene.stored()[0].deliveries == (Delivery("page", FIRING, NOW, 1),))
    scene.groups.facts = {"g": replace(not_ready(), state="Stable")}
    assert wait_until(lambda: scene.stored()[0].state == RESOLVED)
    (resolved,) = scene.offered(RESOLVED)
    assert resolved.deliveries == (Delivery("page", FIRING, NOW, 1), Delivery("page", RESOLVED))
    assert scene.watch.open_alerts() == ()
    assert scene.lines == []


def test_a_restart_sends_what_was_not_sent_and_repeats_nothing(scene: Scene) -> None:
    scene.groups.facts = {"g": not_ready()}
    assert wait_until(lambda: scene.stored() != [])
    (fired,) = scene.stored()
    scene.end()  # as killed between firing and sending
    scene.begin()
    assert scene.sent.offered[:1] == [fired]
    scene.sent.done(fired.fingerprint, Delivery("page", FIRING, NOW, 1))
    assert wait_until(lambda: scene.stored()[0].deliveries[0].sent_at is not None)
    scene.end()
    scene.begin()
    assert [delivery.sent_at for alert in scene.sent.offered for delivery in alert.deliveries] == [NOW]
    assert len(scene.stored()) == 1


def test_nothing_fires_before_the_job_has_caught_up(scene: Scene) -> None:
    scene.job = replace(scene.job, caught_up=False)
    scene.groups.facts = {"g": not_ready()}
    scene.watch.finish(1)
    assert scene.stored() == []
    scene.begin()
    scene.job = replace(scene.job, caught_up=True)
    assert wait_until(lambda: scene.stored() != [])


def test_a_table_that_cannot_be_written_is_told_once_and_keeps_no_alert_from_its_sinks(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(watch, "_AFTER_FAILURE_SECONDS", 0.2)
    with monkeypatch.context() as disk:
        disk.setattr(AlertStore, "save", full)
        scene.groups.facts = {"g": not_ready()}
        assert wait_until(lambda: scene.offered(FIRING) != [])
    assert wait_until(lambda: scene.stored() != [])
    assert scene.lines == ["alerts: No space left on device; trying again"]
    assert len(scene.offered(FIRING)) == 1


def test_groups_that_cannot_be_read_for_a_while_end_nothing(scene: Scene) -> None:
    scene.groups.facts = {"g": not_ready()}
    assert wait_until(lambda: scene.stored() != [])
    scene.groups.broken = True
    scene.groups.facts = {}
    assert wait_until(lambda: scene.lines != [])
    assert scene.stored()[0].state == FIRING
    scene.groups.broken = False
    assert wait_until(lambda: scene.stored()[0].state == RESOLVED)


def test_what_was_due_to_a_sink_that_is_no_longer_configured_is_not_waited_for(scene: Scene) -> None:
    scene.groups.facts = {"g": not_ready()}
    assert wait_until(lambda: scene.stored() != [])
    scene.end()
    scene.sinks = ("other",)
    scene.begin()
    assert wait_until(lambda: scene.stored()[0].deliveries == ())

"""Silenced alerts keep their state and send nothing; what still fires when the silence ends is then sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.alerts.alert import FIRING, RESOLVED, Alert, AlertKey, Delivery, Finding
from streaming_app.alerts.lifecycle import AlertState, NotifyPolicy, advance
from streaming_app.alerts.notification_queue import Attempt, Grouping
from streaming_app.alerts.outbox import Backoff, Outboxes, SinkTraits
from streaming_app.alerts.rule import RuleSettings
from streaming_app.errors import WarehouseError
from streaming_app.notify.silences import ActiveSilences, RecurringSilence, Silence, SilenceStore, new_silence
from streaming_app.notify.sink import Sink, SinkError
from streaming_app.regex import Regex
from streaming_app.time_intervals import TimeInterval
from tests.alerts.examples import make_alert
from tests.notify.sending import Sending
from tests.waiting import wait_until
from tests.warehouses import make_warehouse

NOW = datetime(2026, 11, 22, 8, tzinfo=timezone.utc)


class KeepingSink(Sink):
    """Keeps what it gets; fails while `down`."""

    def __init__(self, name: str = "page", *, resend: float | None = None) -> None:
        super().__init__(name)
        self.resend_seconds = resend
        self.sent: list[tuple[str | None, str]] = []
        self.resent: list[list[str | None]] = []
        self.down = False

    def send(self, alert: Alert, event: str) -> None:
        if self.down:
            raise SinkError("down", retry=True)
        self.sent.append((alert.group_id, event))

    def resend(self, alerts: Any) -> None:
        self.resent.append([alert.group_id for alert in alerts])


class Silenced:
    """A dispatcher in a warehouse with silences, and a clock that the test moves."""

    def __init__(self, warehouse: Path) -> None:
        self.now = NOW
        self.lines: list[str] = []
        self.warehouse = warehouse
        self.store = SilenceStore(warehouse, "prod")
        self.at_exit = ExitStack()

    def add(self, group: str = "pay.*", rule: str | None = None, duration: str = "1h") -> Silence:
        silence = new_silence(
            group=group, rule=rule, duration=duration, comment="deployment", created_by="me", now=self.now
        )
        self.store.add(silence)
        return silence

    def active(self) -> ActiveSilences:
        silences = ActiveSilences(self.warehouse, "prod", self.lines.append, lambda: self.now)
        silences.refresh()
        return silences

    def start(self, *sinks: Sink) -> Sending:
        dispatcher = Sending(
            sinks,
            lambda _results: None,
            grouping=Grouping(0, 0),
            silences=self.active(),
        )
        self.at_exit.callback(dispatcher.close, 5)
        return dispatcher


@pytest.fixture
def silenced(tmp_path: Path) -> Iterator[Silenced]:
    running = Silenced(make_warehouse(tmp_path))
    with running.at_exit:
        yield running


def offer(dispatcher: Sending, *alerts: Alert) -> tuple[Alert, ...]:
    """Do what the evaluator does at each evaluation; return the alerts as they are stored."""
    settled = dispatcher.settle(alerts)
    dispatcher.offer(settled)
    assert dispatcher.flush(10)
    return settled


@pytest.mark.slow
@given(
    group=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    other=st.text(max_size=40),
    rule=st.sampled_from([None, "not-ready", "stuck"]),
    seconds=st.integers(1, 30 * 86_400),
    at=st.integers(-301, 30 * 86_400),
)
def test_a_silence_of_a_group_by_its_id_is_of_no_other_group_and_ends_when_it_says(
    group: str, other: str, rule: str | None, seconds: int, at: int
) -> None:
    made = new_silence(
        group=re.escape(group), rule=rule, duration=f"{seconds}s", comment="why", created_by="me", now=NOW
    )
    silence = Silence.model_validate_json(made.model_dump_json())
    assert silence == made
    found = {one: silence.matches(make_alert(group_id=one)) for one in (group, other, f"{group}x", f"x{group}", None)}
    assert found == {one: rule != "stuck" and (one == group or (one is None and rule is not None)) for one in found}
    assert silence.is_active(NOW + timedelta(seconds=at)) == (-300 <= at < seconds)


def test_a_silence_that_begins_later_begins_then_and_not_before() -> None:
    begin = NOW + timedelta(hours=2)
    common = {"group": "a", "rule": None, "duration": "1h", "comment": "why", "created_by": "me", "now": NOW}
    silence = new_silence(**common, starts_at=begin)
    stored = Silence.model_validate_json(silence.model_dump_json())
    active = [minutes for minutes in range(0, 300, 1) if stored.is_active(NOW + timedelta(minutes=minutes))]
    assert (active[0], active[-1]) == (120, 179)
    with pytest.raises(ValueError, match="--starts-at must not be in the past"):
        new_silence(**common, starts_at=NOW - timedelta(seconds=1))
    with pytest.raises(ValueError, match="--starts-at must be at most 365d ahead"):
        new_silence(**common, starts_at=NOW + timedelta(days=366))


NIGHTS = RecurringSilence(
    "silences[0]",
    Regex("pay.*"),
    None,
    [TimeInterval(times=[(0, 360), (1320, 1440)], location=ZoneInfo("Europe/Berlin"))],
    (),
    "nights",
)


@pytest.mark.slow
@given(
    begin=st.sampled_from(
        [datetime(2026, 3, 27, 12, tzinfo=timezone.utc), datetime(2026, 10, 23, 12, tzinfo=timezone.utc)]
    ),
    fires=st.lists(st.booleans(), min_size=72, max_size=72),
)
def test_a_silence_that_recurs_sends_nothing_meanwhile_and_nothing_twice(begin: datetime, fires: list[bool]) -> None:
    outboxes = Outboxes([SinkTraits("page")], Grouping(), Backoff())
    outbox, policy = outboxes.by_sink["page"], NotifyPolicy(("page",))
    state, sent, known = AlertState(), [], set()
    for hour, is_firing in enumerate(fires):
        now = begin + timedelta(hours=hour)
        is_silent = NIGHTS.is_active(now)
        findings = {AlertKey("R", "payments"): Finding(begin, "s")} if is_firing else {}
        settings = {"R": RuleSettings("critical", 0.0, {})}
        changes = advance(
            state,
            findings,
            cluster="prod",
            now=now,
            rule_settings_of=lambda _group, settings=settings: settings,
            notify_policy=policy,
            caught_up=True,
        )
        state = changes.state
        active = (lambda _alert: True) if is_silent else None
        outboxes.offer(outboxes.settle(changes.changed, active), active, hour)
        while task := outbox.take(hour):
            assert isinstance(task, Attempt)
            assert not is_silent
            sent += [(alert.fingerprint, task.event) for alert in task.alerts]
            for alert, (_, delivery) in zip(task.alerts, outbox.answered(task, None, now, hour).results, strict=True):
                deliveries = tuple(delivery if one.event == delivery.event else one for one in alert.deliveries)
                state = state.with_deliveries(replace(alert, deliveries=deliveries))
        known |= {alert.fingerprint for alert in state.open.values()}
        if not is_silent:
            firing = {alert.fingerprint for alert in state.open.values()}
            sent_for = {name for name, event in sent if event == FIRING} - {
                name for name, event in sent if event == RESOLVED
            }
            assert sent_for == firing
    assert len(sent) == len(set(sent))


def test_a_silence_that_recurs_ends_when_its_interval_does() -> None:
    silence = NIGHTS.at(datetime(2026, 10, 24, 21, 30, tzinfo=timezone.utc))
    assert silence is not None
    assert silence.ends_at == datetime(2026, 10, 25, 5, tzinfo=timezone.utc)  # 06:00, an hour later than the day before
    assert NIGHTS.at(datetime(2026, 10, 24, 12, tzinfo=timezone.utc)) is None
    day = RecurringSilence("x", Regex(".*"), None, (), NIGHTS.mute, "")
    assert [one.is_active(datetime(2026, 10, 24, 12, tzinfo=timezone.utc)) for one in (day, NIGHTS)] == [True, False]


@given(
    begin=st.integers(0, 330_000).map(lambda minutes: NOW - timedelta(minutes=minutes)),
    hours=st.integers(1, 24 * 40),
    share=st.floats(0, 1),
    is_day=st.booleans(),
)
def test_the_times_of_a_silence_that_recurs_are_those_at_which_it_is_active(
    begin: datetime, hours: int, share: float, is_day: bool
) -> None:
    silence = RecurringSilence("x", Regex(".*"), None, (), NIGHTS.mute, "") if is_day else NIGHTS
    end = begin + timedelta(hours=hours)
    found = list(silence.between(begin, end))
    time = begin + share * (end - begin)
    assert any(one.starts_at <= time < one.ends_at for one in found) == silence.is_active(time)
    assert all(before.ends_at < after.starts_at for before, after in pairwise(found))


def test_a_silence_that_recurs_without_an_end_is_one() -> None:
    always, begin = RecurringSilence("x", Regex(".*"), None, [TimeInterval()], (), ""), NOW
    (found,) = always.between(begin, begin + timedelta(days=100))
    assert (found.starts_at, found.ends_at) == (begin, begin + timedelta(days=130))
    assert list(NIGHTS.between(begin, begin)) == []


def test_a_silenced_alert_sends_nothing_and_is_sent_if_it_still_fires_at_the_end(silenced: Silenced) -> None:
    sink = KeepingSink()
    dispatcher = silenced.start(sink)
    silenced.add()
    (stored,) = offer(dispatcher, make_alert("page"))
    offer(dispatcher, make_alert("page", group_id="other"))
    assert sink.sent == [("other", FIRING)]
    assert stored == make_alert("page")
    silenced.now += timedelta(hours=1)
    offer(dispatcher)
    offer(dispatcher)
    assert sink.sent == [("other", FIRING), ("payments", FIRING)]


def test_what_fires_and_is_resolved_within_a_silence_is_never_sent(silenced: Silenced) -> None:
    sink = KeepingSink()
    dispatcher = silenced.start(sink)
    silenced.add()
    offer(dispatcher, make_alert("page"))
    (stored,) = offer(dispatcher, make_alert("page", resolved=True))
    assert (stored.state, stored.deliveries) == (RESOLVED, ())
    silenced.now += timedelta(hours=2)
    offer(dispatcher)
    assert sink.sent == []


def test_an_alert_that_was_sent_before_the_silence_is_resolved_in_the_sink_when_the_silence_ends(
    silenced: Silenced,
) -> None:
    sink = KeepingSink()
    dispatcher = silenced.start(sink)
    offer(dispatcher, make_alert("page"))
    silenced.add()
    sent = Delivery("page", FIRING, NOW, 1)
    resolved = make_alert(resolved=True, deliveries=(sent, Delivery("page", RESOLVED)))
    (stored,) = offer(dispatcher, resolved)
    assert (stored.deliveries, sink.sent) == (resolved.deliveries, [("payments", FIRING)])
    silenced.now += timedelta(hours=2)
    offer(dispatcher)
    assert sink.sent == [("payments", FIRING), ("payments", RESOLVED)]


def test_a_repetition_that_was_due_in_the_silence_is_not_sent_after_the_resolution(silenced: Silenced) -> None:
    dispatcher = silenced.start(KeepingSink())
    silenced.add()
    repeat = (Delivery("page", FIRING, repeat=3), Delivery("page", RESOLVED))
    (stored,) = offer(dispatcher, make_alert(resolved=True, deliveries=repeat))
    assert stored.deliveries == (Delivery("page", RESOLVED),)


def test_what_waits_for_a_sink_that_is_down_is_withdrawn_when_a_silence_begins(silenced: Silenced) -> None:
    sink = KeepingSink()
    sink.down = True
    dispatcher = silenced.start(sink)
    dispatcher.offer([make_alert("page"), make_alert("page", group_id="other")])
    assert wait_until(lambda: dispatcher.status()[0].failed > 1)
    silenced.add()
    assert wait_until(lambda: dispatcher.offer([]) or dispatcher.status()[0].waiting == 1)
    sink.down = False
    assert dispatcher.flush(10)
    assert sink.sent == [("other", FIRING)]
    silenced.now += timedelta(hours=2)
    offer(dispatcher)
    assert sink.sent == [("other", FIRING), ("payments", FIRING)]


def test_a_silenced_alert_is_not_resent_to_alertmanager_until_the_silence_ends(silenced: Silenced) -> None:
    sink = KeepingSink(resend=0.05)
    dispatcher = silenced.start(sink)
    sent = (Delivery("page", FIRING, NOW, 1),)
    offer(dispatcher, make_alert(deliveries=sent), make_alert(group_id="other", deliveries=sent))
    assert wait_until(lambda: sink.resent[-1:] == [["payments", "other"]])
    silenced.add()
    offer(dispatcher)
    assert wait_until(lambda: sink.resent[-2:] == [["other"]] * 2)
    silenced.now += timedelta(hours=2)
    offer(dispatcher)
    assert wait_until(lambda: sink.resent[-2:] == [["other", "payments"]] * 2)
    assert sink.sent == []


def test_after_a_restart_a_silenced_alert_still_waits(silenced: Silenced) -> None:
    silenced.add()
    first = KeepingSink()
    dispatcher = silenced.start(first)
    stored = offer(dispatcher, make_alert("page"))
    dispatcher.close(5)
    second = KeepingSink()
    again = silenced.start(second)
    offer(again, *stored)
    assert (first.sent, second.sent) == ([], [])
    silenced.now += timedelta(hours=2)
    offer(again)
    assert second.sent == [("payments", FIRING)]


def test_a_silence_matches_whole_ids_one_rule_and_the_job_only_by_its_rule(silenced: Silenced) -> None:
    silenced.add("pay")
    assert silenced.active().find(make_alert()) is None
    silenced.add("pay.*", rule="other-rule")
    assert silenced.active().find(make_alert()) is None
    silenced.add(".*")
    silences = silenced.active()
    assert silences.find(make_alert())
    assert silences.find(make_alert(group_id="x\ny")), "an id may hold any character"
    assert silences.find(make_alert(group_id=None)) is None
    silenced.add("no group", rule="not-ready")
    assert silenced.active().find(make_alert(group_id=None))


def test_of_several_silences_the_one_that_ends_last_counts(silenced: Silenced) -> None:
    silenced.add(duration="1h")
    last = silenced.add(duration="3h")
    silenced.add(duration="2h")
    assert silenced.active().find(make_alert()) == last


def test_silences_of_another_cluster_do_not_count(silenced: Silenced) -> None:
    SilenceStore(silenced.warehouse, "test").add(silenced.add())
    silenced.store.expire(silenced.store.all()[0].id, NOW)
    assert silenced.active().find(make_alert()) is None


def test_an_expired_silence_has_ended_for_a_job_that_read_it_before(silenced: Silenced) -> None:
    silence = silenced.add()
    silences = silenced.active()
    assert silences.find(make_alert()) == silence
    assert silenced.store.expire(silence.id, NOW + timedelta(minutes=1)) == silence
    silenced.now += timedelta(minutes=1)
    assert silences.refresh() is False
    assert silenced.store.all()[0].ends_at == silenced.now


@pytest.mark.parametrize("name", ["nope", "../../default", "", "00000000"])
def test_a_silence_that_does_not_exist_cannot_be_expired(silenced: Silenced, name: str) -> None:
    silenced.add()
    with pytest.raises(WarehouseError, match=r"^No silence '.*': `streams-groups silence list` shows all$"):
        silenced.store.expire(name, NOW)


def test_a_silence_ends_once(silenced: Silenced) -> None:
    silence = silenced.add()
    silenced.store.expire(silence.id, NOW)
    with pytest.raises(WarehouseError, match="has ended already, at 2026-11-22 08:00:00Z"):
        silenced.store.expire(silence.id, NOW)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"duration": "31d"}, '--for must be at most 30d, not "31d"'),
        ({"duration": "99999d"}, "--for must be at most 30d"),
        ({"duration": "inf"}, "--for must be at most 30d"),
        ({"duration": "nan"}, "--for must be seconds, or a duration such as"),
        ({"duration": "0s"}, "--for must be more than 0s"),
        ({"duration": "-1h"}, "--for must not be negative"),
        ({"duration": "forever"}, "--for must be seconds, or a duration such as"),
        ({"group": "pay("}, "--group is not a valid regular expression: missing )"),
        ({"group": "x" * 1001}, "--group must have at most 1,000 characters"),
        ({"comment": " "}, "--comment must say why"),
        ({"comment": "x" * 501}, "--comment must say why, in at most 500 characters"),
    ],
)
def test_a_silence_that_must_not_be_is_one_line(change: dict[str, str], words: str) -> None:
    values = {"group": ".*", "duration": "1h", "comment": "why", "created_by": "me"}
    with pytest.raises(ValueError, match=r"^--") as raised:
        new_silence(**(values | change), rule=None, now=NOW)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("broken", ["{", "{}", '"text"', None])
def test_a_file_that_is_no_silence_is_reported_once_and_silences_nothing(
    silenced: Silenced, broken: str | None
) -> None:
    silence = silenced.add()
    file = silenced.warehouse / "_jobs" / "prod.silences" / f"{silence.id}.json"
    endless = json.loads(file.read_text()) | {"ends_at": "9999-01-01T00:00:00Z"}
    file.write_text(json.dumps(endless) if broken is None else broken)
    silences = silenced.active()
    assert silences.refresh() is False
    assert silences.find(make_alert()) is None
    assert silenced.lines == [f"silences: {file} is not a silence that this release can read"]
    with pytest.raises(WarehouseError, match="is not a silence"):
        silenced.store.all()


def test_silences_stay_while_their_directory_cannot_be_read(
    silenced: Silenced, monkeypatch: pytest.MonkeyPatch
) -> None:
    silenced.add()
    silences = silenced.active()

    def fail(_location: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("streaming_app.tables.location.Location.names", fail)
    assert silences.refresh()
    assert silences.refresh()
    assert silences.find(make_alert())
    assert len(silenced.lines) == 1
    assert silenced.lines[0].endswith("prod.silences: Input/output error")


def test_silences_that_ended_long_ago_are_removed_when_one_is_added(silenced: Silenced) -> None:
    old, recent = silenced.add(duration="1h"), silenced.add(duration="2d")
    silenced.store.expire(old.id, NOW)
    silenced.now += timedelta(days=31)
    newest = silenced.add()
    names = {file.name for file in (silenced.warehouse / "_jobs" / "prod.silences").iterdir()}
    assert names == {f"{recent.id}.json", f"{newest.id}.json"}


def test_there_are_no_silences_without_a_warehouse(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="No streams-groups warehouse"):
        Silenced(tmp_path).add()
    assert list(tmp_path.iterdir()) == []


def test_an_alert_without_silences_is_stored_as_it_is(silenced: Silenced) -> None:
    dispatcher = silenced.start(KeepingSink())
    resolved = make_alert("page", resolved=True)
    assert offer(dispatcher, resolved) == (resolved,)
    assert replace(resolved, deliveries=()) not in dispatcher.settle([resolved])

"""An alert engine with what survives it: the table of alerts and a pager."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.alerts.alert import Alert
from streaming_app.alerts.engine import AlertEngine
from streaming_app.alerts.engine_facts import DescriptionSupport, EngineSettings, Observed
from streaming_app.config.alerts import AlertSettings
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.health.verdict import Verdict
from streaming_app.notify.outbox import Outbox
from streaming_app.notify.sink import SinkError
from tests.notify.kept import Told
from tests.support.healthy_group import healthy_group

START = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
OLD = START - timedelta(days=30)
PAGER = "pager"
FAILED = "StreamsGroupDescriptionFailed"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def group(status: str = "CURRENT", since: float = 0, group_id: str = "payments") -> GroupSnapshot:
    return replace(healthy_group(OLD), group_id=group_id, description_status=status, description_since=at(since))


@dataclass
class Rig:
    """A table of alerts and a pager, which survive the engines that use them."""

    settings: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Alert] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    received: list[tuple[str, Alert]] = field(default_factory=list)
    lag_of_all_groups: bool = False
    is_muted: Callable[[Alert], bool] | None = field(init=False)
    engine: AlertEngine = field(init=False)
    outbox: Outbox = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, is_muted: Callable[[Alert], bool] | None = None) -> None:
        """Start another engine with what the table has, as after a kill."""
        self.is_muted = is_muted
        known = AlertSettings.model_validate(self.settings)
        engine = EngineSettings(
            "prod",
            known.rule_settings_of(),
            (PAGER,),
            lag_of_all_groups=self.lag_of_all_groups,
            of_classic_groups=known.protocols != "streams",
            is_muted=lambda one: bool(self.is_muted and self.is_muted(one)),
        )
        stored, support = list(self.table.values()), DescriptionSupport("always")
        self.engine = AlertEngine(engine, stored, support, verdicts=self.verdicts)
        self.outbox = Outbox(Told(PAGER), self.engine.lifecycle)
        self.outbox.wait = self.outbox.interval = 0.0

    def step(
        self, seconds: float, *groups: GroupSnapshot, is_muted: Callable[[Alert], bool] | None = None, **observed: Any
    ) -> None:
        self.is_muted = is_muted
        self.engine.step(Observed({one.group_id: one for one in groups}, **observed), at(seconds))

    def save(self) -> None:
        unsaved = self.engine.lifecycle.unsaved
        self.table |= {one.alert_id: one for one in unsaved}
        self.table = {alert_id: one for alert_id, one in self.table.items() if not one.is_forgotten}
        self.engine.lifecycle.saved(unsaved)
        self.verdicts |= {change.group_id: change.verdict for change in self.engine.unsaved_changes}
        self.verdicts = {one: verdict for one, verdict in self.verdicts.items() if self.engine.board.knows(one)}
        self.engine.unsaved_changes.clear()

    def send(self, seconds: float, error: SinkError | None = None) -> None:
        """Let the pager take what is due, and note what it says."""
        while sent := self.outbox.take(seconds):
            if error is None:
                self.received += ((sent.event, one) for one in sent.alerts)
            self.outbox.answered(sent, error, at(seconds), seconds)

    def cycle(self, seconds: float, *groups: GroupSnapshot, **observed: Any) -> None:
        """Do what the job does at each evaluation."""
        self.step(seconds, *groups, **observed)
        self.save()
        self.engine.lifecycle.publish()
        self.send(seconds)
        self.save()

    @property
    def sent(self) -> list[tuple[str, str | None]]:
        """What the pager was told: event and group."""
        return [(event, alert.group_id) for event, alert in self.received]

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """The alerts that are pending or open."""
        return tuple(self.engine.lifecycle.open.values())

    def open_rules(self) -> set[str]:
        return {alert.rule for alert in self.alerts}

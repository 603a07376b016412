"""The brokers of a cluster as the job last saw them, and the facts that their releases do not provide."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from streaming_app.kafka import BROKER_CONFIG, FEATURE
from streaming_app.kafka.releases import (
    OFFSETS_RETENTION,
    OFFSETS_SWEEP,
    RELEASE,
    TASK_OFFSETS,
    Ability,
    BrokerRelease,
    configs_by_broker,
    why_unknown,
)
from streaming_app.tables.reader import WarehouseReader, quote

_DEFAULT_RETENTION, _DEFAULT_SWEEP = timedelta(days=7), timedelta(minutes=10)  # Kafka's defaults


class Brokers(NamedTuple):
    """The brokers that answered, and when they did."""

    releases: tuple[BrokerRelease, ...] = ()
    observed_at: datetime | None = None
    configs: Mapping[int, Mapping[str, str]] = {}

    @property
    def offsets_retention(self) -> timedelta:
        """How long the brokers keep offsets of a group without members: the longest value, or Kafka's default."""
        known = self._numbers(OFFSETS_RETENTION)
        return timedelta(minutes=max(known)) if known else _DEFAULT_RETENTION

    @property
    def offsets_sweep(self) -> timedelta:
        """How often the brokers remove such offsets, and groups without offsets: the longest value, or the default."""
        known = self._numbers(OFFSETS_SWEEP)
        return timedelta(milliseconds=max(known)) if known else _DEFAULT_SWEEP

    def _numbers(self, name: str) -> list[float]:
        return [float(values[name]) for values in self.configs.values() if name in values]

    def why_unknown(self, ability: Ability) -> str | None:
        """Return what is unknown because some brokers lack an ability, with the reason."""
        return why_unknown(ability, self.releases)

    def why_no_offsets(self) -> str:
        """Return a sentence that says why the lag of copies is not known."""
        if reason := self.why_unknown(TASK_OFFSETS):
            return f"{reason[0].upper()}{reason[1:]}."
        since = "" if self.releases else f" since Kafka {TASK_OFFSETS.since}"
        return (
            f"{TASK_OFFSETS.unknown[0].upper()}{TASK_OFFSETS.unknown[1:]}: clients report it once a minute, but not "
            f"for running active tasks; brokers return it{since} to a job with Describe on the group."
        )


def read_brokers(reader: WarehouseReader, cluster: str) -> Brokers:
    """Return the stored facts about the brokers of a cluster. Raises WarehouseError."""
    rows = reader.rows(
        "SELECT subject, kind, name, value, observed_at FROM broker_facts "  # noqa: S608 - quoted
        f"WHERE cluster = {quote(cluster)} AND kind IN ({quote(FEATURE)}, {quote(BROKER_CONFIG)}) ORDER BY subject"
    )
    features, configs = (
        configs_by_broker((row["subject"], row["name"], row["value"]) for row in rows if row["kind"] == kind)
        for kind in (FEATURE, BROKER_CONFIG)
    )
    found = (
        BrokerRelease(broker, values.pop(RELEASE), {name: int(value) for name, value in values.items()})
        for broker, values in sorted(features.items())
    )
    observed_at = max((row["observed_at"] for row in rows if row["kind"] == FEATURE), default=None)
    return Brokers(tuple(found), observed_at, configs)

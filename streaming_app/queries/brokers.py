"""What the brokers of a cluster are, as the job last heard from them, and what is unknown for that reason."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from streaming_app.kafka.broker_facts import RETENTION, retention_seconds
from streaming_app.kafka.releases import (
    ABILITIES,
    RELEASE,
    TASK_OFFSETS,
    Ability,
    BrokerRelease,
    describe_releases,
    why_unknown,
)
from streaming_app.tables.reader import WarehouseReader, quote

_QUERY = "SELECT subject, name, value, observed_at FROM broker_facts WHERE cluster = {} AND kind = 'feature' ORDER BY 1"


_RETENTION = f"SELECT subject, name, value FROM broker_facts WHERE cluster = {{}} AND kind = '{RETENTION}'"  # noqa: S608 - our own


class Brokers(NamedTuple):
    """The brokers that answered, and when."""

    releases: tuple[BrokerRelease, ...] = ()
    observed_at: datetime | None = None

    def why_unknown(self, ability: Ability) -> str | None:
        """Return what is unknown since some of them lack an ability, and why."""
        return why_unknown(ability, self.releases)

    def reasons(self) -> Iterator[str]:
        """Yield the same for every ability that some lack."""
        yield from filter(None, map(self.why_unknown, ABILITIES))

    def describe(self) -> str:
        """Return the releases and features, for people."""
        return describe_releases(self.releases) or "not asked yet: the running job asks them once it has caught up"

    def why_no_offsets(self) -> str:
        """Return why nothing is known of how far behind copies are, in a sentence."""
        if reason := self.why_unknown(TASK_OFFSETS):
            return f"{reason[0].upper()}{reason[1:]}."
        since = "" if self.releases else f", which tell it since Kafka {TASK_OFFSETS.since}"
        return (
            f"{TASK_OFFSETS.unknown[0].upper()}{TASK_OFFSETS.unknown[1:]}: the job asks the brokers{since}, and needs "
            "Describe on the group."
        )


def read_brokers(reader: WarehouseReader, cluster: str) -> Brokers:
    """Return what the job has stored of a cluster's brokers. Raises WarehouseError."""
    rows = reader.rows(_QUERY.format(quote(cluster)))
    found = []
    for subject, facts in groupby(rows, key=lambda row: str(row["subject"])):
        values = {row["name"]: row["value"] for row in facts}
        release = values.pop(RELEASE)
        found.append(BrokerRelease(int(subject), release, {name: int(value) for name, value in values.items()}))
    ordered = tuple(sorted(found, key=lambda one: one.broker_id))
    return Brokers(ordered, max((row["observed_at"] for row in rows), default=None))


def read_retention(reader: WarehouseReader, cluster: str) -> dict[str, float]:
    """Return for how many seconds topics keep records, as the job last heard. Raises WarehouseError."""
    rows = reader.rows(_RETENTION.format(quote(cluster)))
    return retention_seconds((row["subject"], row["name"], row["value"]) for row in rows)

"""Facts about groups that are not in the log: the coordinator, the effective configs, and when a group expires."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streaming_app.kafka import ASKED_FOR, COORDINATOR, GROUP_CONFIG, INTERNAL_TOPIC, LEFT_OVER_TOPIC
from streaming_app.queries.brokers import Brokers
from streaming_app.tables.reader import Row, WarehouseReader, of_groups, quote
from streaming_app.text import format_duration, utc

_CONFIG = ("name", "value", "source", "value_before", "changed_at", "observed_at")
_ASSIGNOR = "streams.assignor.name"


@dataclass
class GroupFacts:
    """Facts about one group; empty if the job has not asked the brokers, or lacks the permission."""

    coordinator: str | None = None
    """As Kafka's tools print it: `HOST:PORT (ID)`."""
    configs: list[Row] = field(default_factory=list)
    """By config name: `_CONFIG` of each effective config."""

    @property
    def assignor(self) -> str | None:
        """The name of the effective assignor."""
        return next((one["value"] for one in self.configs if one["name"] == _ASSIGNOR), None)

    def limits(self, brokers: Brokers) -> Mapping[str, str]:
        """Return the configs of the group's coordinator, which include limits; empty if it is not known."""
        broker = (self.coordinator or "").rpartition("(")[2].rstrip(")")
        return brokers.configs.get(int(broker), {}) if broker.isdecimal() else {}

    def to_json(self) -> dict[str, Any]:
        """Return the facts in the form of `describe --json`."""
        return {"coordinator": self.coordinator, "configs": self.configs}


class Expiry(NamedTuple):
    """When the brokers may remove offsets and records of a group without members. Both None: at their next sweep.

    They keep an offset for `offsets.retention.minutes` after its commit. A sweep every
    `offsets.retention.check.interval.ms` deletes a group without offsets, and then its stored description
    (`OffsetExpirationCondition` and `GroupCoordinatorService.cleanupExpiredOffsets`, Kafka 4.4.0).
    """

    offsets_from: datetime | None
    group_at: datetime | None


def read_group_facts(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> Mapping[str, GroupFacts]:
    """Return the facts about each of these groups. Raises WarehouseError."""
    found = {group_id: GroupFacts() for group_id in group_ids}
    if not found:
        return found
    rows = reader.rows(
        f"SELECT subject, kind, {', '.join(_CONFIG)} FROM broker_facts "  # noqa: S608 - quoted
        f"WHERE cluster = {quote(cluster)} AND kind IN ({quote(COORDINATOR)}, {quote(GROUP_CONFIG)}) "
        f"AND subject IN ({', '.join(map(quote, found))}) ORDER BY subject, name"
    )
    for row in rows:
        facts = found[row["subject"]]
        if row["kind"] == COORDINATOR:
            facts.coordinator = row["value"]
        else:
            facts.configs.append({name: row[name] for name in _CONFIG})
    return found


def differing_topics(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> list[Row]:
    """Return a row for each difference between an internal topic of these groups and its definition in the topology."""
    rows = reader.rows(
        "SELECT group_id, subject, name, value FROM broker_facts "  # noqa: S608 - quoted
        f"WHERE {of_groups(cluster, group_ids)} AND kind = {quote(INTERNAL_TOPIC)} AND value LIKE '%{ASKED_FOR}%' "
        "ORDER BY group_id, subject, name"
    )
    return [
        {"GROUP": row["group_id"], "INTERNAL-TOPIC": row["subject"], "WHAT": row["name"], "DIFFERS": row["value"]}
        for row in rows
    ]


def left_over_topics(reader: WarehouseReader, cluster: str, group_ids: Collection[str] | None = None) -> list[Row]:
    """Return a row for each internal topic that remains from an earlier topology, or from a deleted group.

    `group_ids` None: of all groups. Raises WarehouseError.
    """
    rows = reader.rows(
        "SELECT group_id, subject, name, value FROM broker_facts "  # noqa: S608 - quoted
        f"WHERE {of_groups(cluster, group_ids)} AND kind = {quote(LEFT_OVER_TOPIC)} ORDER BY group_id, subject"
    )
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        found.setdefault((row["group_id"], row["subject"]), {})[row["name"]] = row["value"]
    return [
        {
            "GROUP": group_id,
            "LEFT-OVER-TOPIC": topic,
            "LEFT-BY": values["left_by"],
            "PARTITIONS": int(values["partitions"]),
            "BYTES": int(values["bytes"]) if "bytes" in values else None,
        }
        for (group_id, topic), values in found.items()
    ]


def with_answers(table: Iterable[Row], facts: Mapping[str, GroupFacts]) -> list[Row]:
    """Return the rows of `describe --state` with COORDINATOR (ID) and ASSIGNOR, as Kafka's tool prints them."""
    return [
        {"GROUP": row["GROUP"], "COORDINATOR (ID)": known.coordinator, "ASSIGNOR": known.assignor, **row}
        for row in table
        for known in [facts[row["GROUP"]]]
    ]


def expiries(
    reader: WarehouseReader, cluster: str, group_ids: Collection[str], retention: timedelta
) -> dict[str, Expiry]:
    """Return when the brokers remove offsets and records of these groups without members. Raises WarehouseError."""
    rows = reader.rows(
        "SELECT group_id, min(committed_at) AS first, max(committed_at) AS last FROM offsets "  # noqa: S608 - quoted
        f"WHERE {of_groups(cluster, group_ids)} GROUP BY group_id"
    )
    found = dict.fromkeys(group_ids, Expiry(None, None))
    for row in rows:
        if row["first"] is None:  # offsets that come from the brokers have no commit time
            del found[row["group_id"]]
        else:
            found[row["group_id"]] = Expiry(row["first"] + retention, row["last"] + retention)
    return found


def expiry_line(group_id: str, expiry: Expiry, sweep: timedelta) -> str:
    """Return a line that says when the brokers remove a group without members; `sweep` is the time between sweeps."""
    if expiry.offsets_from is None or expiry.group_at is None:
        every = format_duration(sweep.total_seconds())
        return f"{group_id} has no members and no offsets: the brokers delete it at their next sweep, every {every}"
    return (
        f"{group_id} has no members: the brokers delete its offsets from {utc(expiry.offsets_from)} on, and the group, "
        f"with a stored topology description, from {utc(expiry.group_at)} on"
    )


def config_rows(facts: Mapping[str, GroupFacts], brokers: Brokers) -> list[Row]:
    """Return a row for each config of each group, with its source: group, broker or default.

    If limits of the broker change a value, the rows also have the effective values. If the job has seen a value change,
    they also have the earlier values.
    """
    configs = [(group_id, of_group, one) for group_id, of_group in facts.items() for one in of_group.configs]
    in_force = [_in_force(one["name"], one["value"], of_group.limits(brokers)) for _, of_group, one in configs]
    clamped = any(value != one["value"] for value, (_, _, one) in zip(in_force, configs, strict=True))
    changed = any(one["changed_at"] for _, _, one in configs)
    return [
        {"GROUP": group_id, "CONFIG": one["name"], "VALUE": one["value"]}
        | ({"IN-FORCE": value} if clamped else {})
        | {"SOURCE": one["source"]}
        | ({"BEFORE": one["value_before"], "CHANGED": one["changed_at"]} if changed else {})
        for value, (group_id, _, one) in zip(in_force, configs, strict=True)
    ]


def _in_force(name: str, value: str, limits: Mapping[str, str]) -> str:
    """Return the value that the coordinator uses: a value beyond the broker's limits is replaced by the limit."""
    of = name.removeprefix("streams.").removeprefix("num.")
    for bound, closer in (("min", max), ("max", min)):
        limit = limits.get(f"group.streams.{bound}.{of}", "")
        if value.isdecimal() and limit.isdecimal():
            value = str(closer(int(value), int(limit)))
    return value

"""What the brokers said of groups besides the log, from `broker_facts`: the coordinator, and the configs in force."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming_app.tables.reader import WarehouseReader, quote

_COORDINATOR, _CONFIG = "coordinator", "group_config"
Row = dict[str, Any]


@dataclass
class GroupFacts:
    """What is known of one group; empty where the job has not asked, or may not."""

    coordinator: str | None = None
    """As Kafka's tools print it: `HOST:PORT (ID)`."""
    configs: list[Row] = field(default_factory=list)
    """Name, value, source and observed_at of each config in force, by name."""

    def to_json(self) -> dict[str, Any]:
        """Return it as `describe --json` has it."""
        return {"coordinator": self.coordinator, "configs": self.configs}


def read_group_facts(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> Mapping[str, GroupFacts]:
    """Return what is known of each of these groups. Raises WarehouseError."""
    found = {group_id: GroupFacts() for group_id in group_ids}
    if not found:
        return found
    rows = reader.rows(
        "SELECT subject, kind, name, value, source, observed_at FROM broker_facts "  # noqa: S608 - quoted
        f"WHERE cluster = {quote(cluster)} AND kind IN ({quote(_COORDINATOR)}, {quote(_CONFIG)}) "
        f"AND subject IN ({', '.join(map(quote, found))}) ORDER BY subject, name"
    )
    for row in rows:
        facts = found[row["subject"]]
        if row["kind"] == _COORDINATOR:
            facts.coordinator = row["value"]
        else:
            facts.configs.append({name: row[name] for name in ("name", "value", "source", "observed_at")})
    return found


def with_coordinators(table: Iterable[Row], facts: Mapping[str, GroupFacts]) -> list[Row]:
    """Return the rows of `describe --state` with the column COORDINATOR (ID), as Kafka's tool has it."""
    return [{"GROUP": row["GROUP"], "COORDINATOR (ID)": facts[row["GROUP"]].coordinator, **row} for row in table]


def config_rows(facts: Mapping[str, GroupFacts]) -> list[Row]:
    """Return a row for each config in force of each group, with where it comes from: group, broker or default."""
    return [
        {"GROUP": group_id, "CONFIG": one["name"], "VALUE": one["value"], "SOURCE": one["source"]}
        for group_id, of_group in facts.items()
        for one in of_group.configs
    ]

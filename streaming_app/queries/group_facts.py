"""Facts about groups that are not in the log: coordinator, effective configs, when a group expires, its description."""

from collections.abc import Collection, Iterator, Mapping

from streaming_app.errors import WarehouseError
from streaming_app.groups.partition import OFFSETS_TOPIC, partition_of
from streaming_app.kafka import ASKED_FOR, COORDINATOR, GROUP_CONFIG, INTERNAL_TOPIC, SINK
from streaming_app.queries.broker_releases import Brokers
from streaming_app.queries.described import find_groups
from streaming_app.tables.reader import Row, WarehouseReader, of_group, of_groups, quote
from streaming_app.text import format_duration, utc

_CONFIG = ("name", "value", "source", "value_before", "changed_at", "observed_at")


def read_group_facts(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> dict[str, Row]:
    """Return `coordinator` and `configs` of each of these groups, as `describe --json` prints them.

    The coordinator is written as by Kafka's tools, `HOST:PORT (ID)`, or `none`; groups of other types have one, too. A
    config, by name, has the columns `_CONFIG`. None and nothing if the job has not asked, or may not ask. Raises
    WarehouseError.
    """
    found: dict[str, Row] = {group_id: {"coordinator": None, "configs": []} for group_id in group_ids}
    rows = reader.rows(
        f"SELECT subject, kind, {', '.join(_CONFIG)} FROM broker_facts "  # noqa: S608 - quoted
        f"WHERE cluster = {quote(cluster)} AND ((kind = {quote(COORDINATOR)} AND group_id IS NULL) "
        f"OR (kind = {quote(GROUP_CONFIG)} AND subject IN ({', '.join(map(quote, found)) or 'NULL'}))) "
        "ORDER BY subject, name"
    )
    coordinators = {row["subject"]: row["value"] for row in rows if row["kind"] == COORDINATOR}
    for group_id, facts in found.items() if coordinators else ():
        facts["coordinator"] = coordinators.get(f"{OFFSETS_TOPIC}-{partition_of(group_id, len(coordinators))}")
    for row in rows:
        if row["kind"] == GROUP_CONFIG:
            found[row["subject"]]["configs"].append({name: row[name] for name in _CONFIG})
    return found


def differing_topics(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> list[Row]:
    """Return a row for each difference between an internal topic of these groups and its definition in the topology."""
    return reader.rows(
        'SELECT group_id AS "GROUP", subject AS "INTERNAL-TOPIC", name AS "WHAT", value AS "DIFFERS" '  # noqa: S608 - quoted
        f"FROM broker_facts WHERE {of_groups(cluster, group_ids)} AND kind = {quote(INTERNAL_TOPIC)} "
        f"AND value LIKE '%{ASKED_FOR}%' ORDER BY group_id, subject, name"
    )


def unwritable_sinks(reader: WarehouseReader, cluster: str, group_ids: Collection[str]) -> list[Row]:
    """Return a row for each topic to which these groups write that does not exist or has no leader."""
    return reader.rows(
        'SELECT group_id AS "GROUP", subject AS "SINK-TOPIC", value AS "PROBLEM" FROM broker_facts '  # noqa: S608 - quoted
        f"WHERE {of_groups(cluster, group_ids)} AND kind = {quote(SINK)} ORDER BY group_id, subject"
    )


def expiry_lines(reader: WarehouseReader, cluster: str, group_ids: Collection[str], brokers: Brokers) -> Iterator[str]:
    """Yield a line for each of these groups without members: when the brokers may remove its offsets and records.

    They keep an offset for `offsets.retention.minutes` after its commit. A sweep every
    `offsets.retention.check.interval.ms` deletes a group without offsets, and then its stored description
    (`OffsetExpirationCondition` and `GroupCoordinatorService.cleanupExpiredOffsets`, Kafka 4.4.0). Raises
    WarehouseError.
    """
    if not group_ids:
        return
    rows = reader.rows(
        "SELECT group_id, min(committed_at) AS first, max(committed_at) AS last FROM offsets "  # noqa: S608 - quoted
        f"WHERE {of_groups(cluster, group_ids)} GROUP BY group_id"
    )
    times = {row["group_id"]: (row["first"], row["last"]) for row in rows}
    kept, sweep = brokers.offsets_retention, format_duration(brokers.offsets_sweep.total_seconds())
    for group_id in group_ids:
        first, last = times.get(group_id, (None, None))
        if group_id not in times:
            yield f"{group_id} has no members and no offsets: the brokers delete it at their next sweep, every {sweep}."
        elif first:  # offsets that come from the brokers have no commit time
            yield (
                f"{group_id} has no members: the brokers delete its offsets from {utc(first + kept)} on, and the "
                f"group, with a stored topology description, from {utc(last + kept)} on."
            )


def config_rows(facts: Mapping[str, Row], brokers: Brokers) -> list[Row]:
    """Return a row for each config of each group, with its source: group, broker or default.

    If limits of the broker change a value, the rows also have the effective values. If the job has seen a value change,
    they also have the earlier values.
    """
    configs = [(group_id, of_group, one) for group_id, of_group in facts.items() for one in of_group["configs"]]
    in_force = [in_force_of(one["name"], one["value"], _limits(of_group, brokers)) for _, of_group, one in configs]
    clamped = any(value != one["value"] for value, (_, _, one) in zip(in_force, configs, strict=True))
    changed = any(one["changed_at"] for _, _, one in configs)
    return [
        {"GROUP": group_id, "CONFIG": one["name"], "VALUE": one["value"]}
        | ({"IN-FORCE": value} if clamped else {})
        | {"SOURCE": one["source"]}
        | ({"BEFORE": one["value_before"], "CHANGED": one["changed_at"]} if changed else {})
        for value, (group_id, _, one) in zip(in_force, configs, strict=True)
    ]


def _limits(facts: Row, brokers: Brokers) -> Mapping[str, str]:
    """Return the configs of the group's coordinator, which include limits; empty if it is not known."""
    broker = (facts["coordinator"] or "").rpartition("(")[2].rstrip(")")
    return brokers.configs.get(int(broker), {}) if broker.isdecimal() else {}


def in_force_of(name: str, value: str, limits: Mapping[str, str]) -> str:
    """Return the value that a coordinator with these configs uses: one beyond its limits is replaced by the limit."""
    of = name.removeprefix("streams.").removeprefix("num.")
    for bound, closer in (("min", max), ("max", min)):
        limit = limits.get(f"group.streams.{bound}.{of}", "")
        if value.isdecimal() and limit.isdecimal():
            value = str(closer(int(value), int(limit)))
    return value


_AVAILABLE, _CURRENT = "AVAILABLE", "CURRENT"
_WHY_NONE = {
    _CURRENT: "the job has not fetched it yet, or needs Describe on the group and its topics",
    "FAILED": "the brokers' plugin rejected a client's description, and the brokers do not ask for it again",
    "UNCERTAIN": "a client has pushed one, but it is not known whether the brokers' plugin stored it",
    "STALE": "the stored one is of another topology epoch, and the job never fetched it",
    "NEVER_STORED": "no client has pushed one that the brokers store",
    "NO_TOPOLOGY": "the group has no topology",
}
"""The reason why there is no description, by the status of the group's description."""
_OF_DESCRIPTION = ("group_id", "topology_epoch", "status", "stored_at", "fetched_at", "text", "node_count", "truncated")


def find_description(reader: WarehouseReader, cluster: str, group_id: str) -> Row:
    """Return the last fetched description, which may be of an earlier topology or of a deleted group.

    It has the columns of `descriptions`, and `is_current`: by the log it still describes the group's topology. Raises
    WarehouseError if there is none, or no such group.
    """
    (group,) = find_groups(reader, cluster, [group_id])
    rows = reader.rows(
        f"SELECT {', '.join(_OF_DESCRIPTION)} FROM descriptions "  # noqa: S608 - quoted
        f"WHERE {of_group(cluster, group_id)} AND fetched_at IS NOT NULL "
        "ORDER BY is_newest DESC, fetched_at DESC LIMIT 1"
    )
    status = group["description_status"]
    if rows:
        is_current = status == _CURRENT and rows[0]["topology_epoch"] == group["topology_epoch"]
        return {**rows[0], "is_current": is_current}
    why = _WHY_NONE.get(status, "its status is not known")
    raise WarehouseError(f"No topology description of {group_id}: {why} ({status})")


def description_origin(row: Row) -> str:
    """Return a sentence that says which description this is."""
    if not row["is_current"]:
        since = ", no longer the one of the group's topology"
    else:
        since = "" if row["status"] == _AVAILABLE else f"; asked again, the broker said {row['status']}"
    return f"Description of topology epoch {row['topology_epoch']}, fetched at {utc(row['fetched_at'])}{since}."

"""Makes the table `alerts` of 0.2.0 like a new one: a row for each problem, with what `incidents` had.

Until 0.2.0 an incident and its alerts were rows of two tables. The rows of `alerts` are rewritten in one commit, which
also replaces the columns: an upgrade that was killed begins again. The table `incidents` of 0.2.0 is only read; its
name is a view now. What is open stays open, under an id by which receivers know it already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import Schema, write_deltalake
from pyspark.sql.types import StructType

from streaming_app.alerts.catalog import REPLACED, RULE_OF_VERDICT, subject_of
from streaming_app.alerts.health_findings import MISSING_TOPIC
from streaming_app.alerts.problem import BY_EVIDENCE, NOT_ENABLED, Delivery, Line, Problem
from streaming_app.health.verdict import BROKER_AWAY
from streaming_app.tables.alerts_table import to_row
from streaming_app.tables.definitions import table

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming_app.tables.location import Location

_OLD_COLUMN = "pending_since"
_CAUSES = {"missing_topic": MISSING_TOPIC, "broker_away": BROKER_AWAY}
_NOT_EVIDENCE = {"incident", "cause", "scope", "was", "ended", "cleared_at"}


def upgrade_alerts(warehouse: Location, alerts: DeltaTable) -> bool:
    """Rewrite the table if it is of 0.2.0, and return whether it was. Raises DeltaError and OSError."""
    if _OLD_COLUMN not in {field.name for field in alerts.schema().fields}:
        return False
    location = warehouse / "incidents"
    incidents = location.delta_table().to_pyarrow_table().to_pylist() if location.is_delta_table() else []
    known = {(row["cluster"], row["incident_id"]): row for row in incidents}
    rows = [to_row(one) for one in _problems(alerts.to_pyarrow_table().to_pylist(), known)]
    columns = ", ".join(f"{column.name} {column.type}" for column in table("alerts").columns)
    schema = pa.schema(Schema.from_json(StructType.fromDDL(columns).json()).to_arrow())
    write_deltalake(
        alerts,
        pa.Table.from_pylist(rows, schema),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=["cluster"],
    )
    return True


def _problems(
    alerts: list[dict[str, Any]], incidents: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterator[Problem]:
    for row in alerts:
        details = json.loads(row["details"] or "{}")
        incident = incidents.get((row["cluster"], details.get("incident", "")), {})
        rule = REPLACED.get(row["rule"], row["rule"])
        opened_at, ended_at = row["opened_at"], row["resolved_at"]
        yield Problem(
            _id(row, details),
            row["cluster"],
            row["group_id"],
            rule,
            row["severity"],
            row["pending_since"],
            opened_at,
            ended_at,
            _ended_by(incident, details) if ended_at else None,
            _cause(incident),
            {},
            row["summary"],
            {name: value for name, value in details.items() if name not in _NOT_EVIDENCE},
            tuple(_timeline(row, rule, incident)) if opened_at else (),
            tuple(Delivery(**{**one, "repeat": one.get("repeat") or 0}) for one in row["deliveries"] or ()),
            subject_of(rule),
        )


def _id(row: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    """Return what sinks know it by: the fingerprint of 0.2.0."""
    opened_at: datetime | None = row["opened_at"]
    key = details.get("incident") or row["rule"]
    at = opened_at.isoformat() if opened_at else row["pending_since"].isoformat()
    return "/".join((row["cluster"], key, row["group_id"] or "", at))


def _ended_by(incident: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    return incident.get("ended_by") or (NOT_ENABLED if "ended" in details else BY_EVIDENCE)


def _cause(incident: Mapping[str, Any]) -> str | None:
    kind = _CAUSES.get(incident.get("cause", ""))
    return f"{kind}:{incident['scope'].split(', ')[0]}" if kind else None


def _timeline(row: Mapping[str, Any], rule: str, incident: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the lines about the group; of a rule that is about something else there is one."""
    own = [one for one in incident.get("timeline") or () if one["group_id"] == row["group_id"]]
    if not own:
        yield Line(row["opened_at"], None, rule, row["severity"], row["summary"])
    for one in own:
        its_rule = RULE_OF_VERDICT.get(one["verdict"], rule) if one["severity"] else rule
        yield Line(one["at"], one["verdict"], its_rule, one["severity"] or row["severity"], one["why"])

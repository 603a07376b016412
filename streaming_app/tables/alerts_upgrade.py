"""Upgrades the table `alerts` of 0.2.0: the new table has one row for each problem.

One commit rewrites the rows and replaces the columns, so an upgrade that was killed simply starts again. Open alerts
stay open, with the id that receivers already know. If 0.2.0 had several open alerts about the health of a group, one
stays open, and the others end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake

from streaming_app.alerts.catalog import replaced
from streaming_app.alerts.problem import BY_EVIDENCE, FIRING, NOT_ENABLED, Delivery, Line, Problem, end_of
from streaming_app.tables.alerts_table import to_row

if TYPE_CHECKING:
    from deltalake import DeltaTable

_OLD_COLUMN = "pending_since"
_NOT_EVIDENCE = {"ended", "cleared_at"}


def upgrade_alerts(alerts: DeltaTable, schema: pa.Schema, now: datetime) -> bool:
    """Rewrite the table with the new schema if 0.2.0 wrote it; return whether it did.

    Raises DeltaError and OSError.
    """
    if not is_of_020(field.name for field in alerts.schema().fields):
        return False
    rows = _one_for_each_key(map(_problem, alerts.to_pyarrow_table().to_pylist()), now)
    new = pa.Table.from_pylist(list(map(to_row, rows)), schema)
    write_deltalake(alerts, new, mode="overwrite", schema_mode="overwrite", partition_by=["cluster"])
    return True


def is_of_020(columns: Iterable[str]) -> bool:
    """Return whether a table `alerts` with these columns is one of 0.2.0."""
    return _OLD_COLUMN in columns


def _problem(row: Mapping[str, Any]) -> Problem:
    details = json.loads(row["details"] or "{}")
    rule, opened_at, ended_at = replaced().get(row["rule"], row["rule"]), row["opened_at"], row["resolved_at"]
    return Problem(
        _fingerprint(row),
        row["cluster"],
        row["group_id"],
        rule,
        row["severity"],
        row["pending_since"],
        opened_at,
        ended_at,
        (NOT_ENABLED if "ended" in details else BY_EVIDENCE) if ended_at else None,
        None,
        {},
        row["summary"],
        {name: value for name, value in details.items() if name not in _NOT_EVIDENCE},
        (Line(opened_at, None, rule, row["severity"], row["summary"]),) if opened_at else (),
        tuple(Delivery(**{**one, "repeat": one.get("repeat") or 0}) for one in row["deliveries"] or ()),
    )


def _fingerprint(row: Mapping[str, Any]) -> str:
    """Return the id by which receivers know the alert."""
    at = row["opened_at"] or row["pending_since"]
    return "/".join((row["cluster"], row["rule"], row["group_id"] or "", at.isoformat()))


def _one_for_each_key(problems: Iterable[Problem], now: datetime) -> list[Problem]:
    """Return the problems; among those with the same key only the first open one stays open."""
    is_open, found = set[tuple[str, object]](), list[Problem]()
    for one in sorted(problems, key=lambda one: (one.opened_at is None, one.since)):
        key = (one.cluster, one.key)
        if one.ended_at is None and key in is_open:
            if one.state == FIRING:
                found.append(end_of(one, now, NOT_ENABLED, [delivery.sink for delivery in one.deliveries]))
            continue
        if one.ended_at is None:
            is_open.add(key)
        found.append(one)
    return found

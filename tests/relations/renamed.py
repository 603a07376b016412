"""Relation N: groups have other names and another order, in the configuration, too; batches have other sizes.

Rows, verdicts, alerts, labels and messages are the same, up to names, `source_partition` and offsets.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from random import Random
from typing import Any

import pyarrow as pa

from streaming_app.groups.fold import CLASSIC_GROUP
from streaming_app.stream.batch_rows import APPENDED, EVENTS, RETRACTED, join
from streaming_app.stream.fold_stage import fold_in_worker, fold_stream, sort_for_fold, stored_as_records
from streaming_app.stream.group_result import FoldOptions
from tests.histories.history import History
from tests.histories.world import World
from tests.stream.test_fold_stage import RAW
from tests.support.encode import encode
from tests.support.offsets_log import RawRecord
from tests.support.warehouses import arrow_schema

_TARGET = 21
_NO_GROUP = "a-group-that-nobody-has"
_OTHER = frozenset({"source_partition", "partition", "log_epoch"})
REASON = "not_ready_reason"
"""The event that has the offset of the record with which its batch ended: the reason comes from no record."""
Names = Mapping[str, str]
Tables = Mapping[str, Sequence[Mapping[str, Any]]]


def names_of(groups: Iterable[str]) -> dict[str, str]:
    """Return for each group another name, so that they are in the opposite order."""
    names = sorted(set(groups))
    return {one: f"renamed-{len(names) - n:04}-of" for n, one in enumerate(names)}


def renamed(world: World, names: Names) -> World:
    """Return the world in which groups have these names; records of groups in one moment are in the opposite order.

    The records of one group stay in their order.
    """
    log = [one._replace(group_id=names[one.group_id]) for one in world.log]
    return replace(
        world,
        log=sorted(log, key=lambda one: (one.at, one.group_id)),
        lag=sorted(
            (one._replace(group_id=names.get(one.group_id, one.group_id)) for one in world.lag),
            key=lambda one: (one.at, one.group_id),
        ),
        copies=[(at, names.get(group, group), *rest) for at, group, *rest in world.copies],
    )


def with_renamed_settings(history: History, names: Names) -> History:
    """Return the history whose configuration has these names."""
    later = {at: renamed_settings(given, names) for at, given in history.later_settings.items()}
    return replace(history, settings=renamed_settings(history.settings, names), later_settings=later)


def renamed_settings(given: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Return the section `alerts:` whose patterns match the same groups under these names."""
    found = dict(given)
    for key in found.keys() & {"groups", "ignore_groups"}:
        patterns = [found[key]] if isinstance(found[key], str) else found[key]
        found[key] = renamed_pattern("|".join(f"(?:{one})" for one in patterns), names)
    if "overrides" in found:
        found["overrides"] = [{**one, "groups": renamed_pattern(one["groups"], names)} for one in found["overrides"]]
    if "successors" in found:
        found["successors"] = {names.get(one, one): names.get(two, two) for one, two in found["successors"].items()}
    return found


def renamed_pattern(pattern: str, names: Names) -> str:
    """Return a pattern for the new names of the groups that a pattern matches."""
    return "|".join(re.escape(names[one]) for one in sorted(names) if re.fullmatch(pattern, one)) or _NO_GROUP


# --- Rows of the tables -----------------------------------------------------------------------------------------------


def log_of(world: World) -> list[RawRecord]:
    """Return the log of a history as raw records of one partition."""
    found = []
    for one in world.log:
        offset, at, record_type, key, value, _ = one.record
        if value and record_type == _TARGET:
            value = {role: [_without_epochs(tasks) for tasks in those] for role, those in value.items()}
        whose = {"group": one.group_id} if record_type == CLASSIC_GROUP else {**key, "group_id": one.group_id}
        pair = encode(record_type, whose, value)
        found.append(RawRecord(0, offset, round(at.timestamp() * 1000) if at else -1, *pair))
    return found


def _without_epochs(tasks: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tasks.items() if name != "assignment_epochs"}


def with_names(log: Iterable[RawRecord], names: Names, partitions: int = 50) -> list[RawRecord]:
    """Return the log of groups with these names, in other partitions and in another order."""
    found = []
    for one in log:
        new = names[one.group_id].encode()
        key = one.key[:2] + len(new).to_bytes(2, "big") + new + one.key[4 + len(one.group_id.encode()) :]
        found.append(one._replace(partition=sum(new) % partitions, key=key))
    return sorted(found, key=lambda one: (one.partition, one.group_id, one.offset))


def fold(log: Sequence[RawRecord], random: Random | None = None, *, in_worker: bool = False) -> dict[str, list[Any]]:
    """Fold a log into rows by table; with `random` in batches and Arrow batches of any sizes."""
    options, rows, tables = FoldOptions("default", "topic"), dict[str, Any](), dict[str, list[Any]]()
    stage, left = fold_in_worker if in_worker else fold_stream, list(log)
    while left:
        size, chunk = random.choice(((1, 1), (3, 2), (40, 7), (900, 100))) if random else (len(left), None)
        batch, left = left[:size], left[size:]
        stored = [rows[one] for one in dict.fromkeys(one.group_id for one in batch) if one in rows]
        kept = stored_as_records(pa.Table.from_pylist(stored, arrow_schema("groups"))) if stored else None
        found = join(stage(sort_for_fold(_raw(batch), kept).to_batches(max_chunksize=chunk), options))
        new = {name: one.to_pylist() for name, one in found.tables.items()}
        rows |= {row["group_id"]: row for row in new.pop("groups", ())}
        gone = {_identity(row) for row in new.pop(RETRACTED, ())}
        tables[EVENTS] = [row for row in tables.get(EVENTS, ()) if _identity(row) not in gone]
        for name in APPENDED:
            tables[name] = [*tables.get(name, ()), *new.get(name, ())]
    return {**tables, "groups": list(rows.values())}


def as_texts(tables: Tables, back: Names) -> dict[str, list[str]]:
    """Return the rows as sorted texts, with the names from before, and without what names and batches decide."""
    return {name: sorted(str(sorted(_plain(row, back).items())) for row in rows) for name, rows in tables.items()}


def _plain(row: Mapping[str, Any], back: Names) -> dict[str, Any]:
    kept = {name: _in_order(value) for name, value in row.items() if name not in _OTHER and not name.endswith("_bytes")}
    if row.get("kind") == REASON:
        del kept["offset"]
    return {**kept, "group_id": back.get(row["group_id"], row["group_id"])}


def _in_order(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, list) else value


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["group_id"], row["kind"], row["member_id"], row["offset"]


def _raw(records: Iterable[RawRecord]) -> pa.Table:
    rows = [
        {
            "group_bytes": one.key[4 : 4 + int.from_bytes(one.key[2:4], "big")],
            "offset": one.offset,
            "partition": one.partition,
            "timestamp": datetime.fromtimestamp(one.timestamp_ms / 1000, timezone.utc),
            "key": one.key,
            "value": one.value,
        }
        for one in records
    ]
    return pa.Table.from_pylist(rows, RAW)

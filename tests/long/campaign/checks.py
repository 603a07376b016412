"""What must hold after each phase, whatever happened in it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from offsets_decoder import decode
from streaming_app.checks.verification import Verification, VerifyError, WarehouseTables
from streaming_app.groups.fold import CLASSIC_GROUP
from streaming_app.groups.replay import RECORD_TYPES
from streaming_app.stream.batch_rows import APPENDED, EVENTS, events_of
from streaming_app.stream.fold_stage import fold_group
from streaming_app.stream.group_result import FoldOptions, LogRow
from streaming_app.stream.truncation import LOG_TRUNCATED
from streaming_app.tables.arrow import to_python
from streaming_app.tables.definitions import history_tables, table, tables
from tests.long.bed import CLUSTER, PARTITIONS, TOPIC, Bed
from tests.long.faults.bed import INPUTS, UNKNOWN_TYPES, ClusterBed, FaultBed
from tests.long.hostile.bed import AttackBed
from tests.support.offsets_log import LogReader, RawRecord, sort_list
from tests.support.waiting import MINUTES, wait_until

DIFFERENCE, DOUBLE, LOSS, PROMISE = "difference", "double", "loss", "broken promise"
OFFSET_COMMIT = 1
_ATTEMPTS = 3  # a group may change while it is compared, because of the broker's own timers
_NOT_FROM_LOG = "not_ready_reason"  # column, change and event: depends on the topics when the job requested them
_OF_BATCHES = "group_type"  # event: of two changes within a batch it is the last one
_CAUSE = "cause"
_NOT_COMPARED = {_NOT_FROM_LOG, _OF_BATCHES, LOG_TRUNCATED}
_FROM_BROKERS = frozenset({"log_epoch", "void"})  # columns: what the brokers said of the records
_SHOWN = 300  # characters
Rows = list[dict[str, Any]]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_READ = {*RECORD_TYPES, CLASSIC_GROUP, *UNKNOWN_TYPES}


class Holds(NamedTuple):
    """Something that must not be."""

    kind: str
    text: str


def check(bed: Bed) -> list[Holds]:
    findings = [*(Holds(PROMISE, text) for text in bed.broken), *_doubles(bed)]
    if isinstance(bed, FaultBed):
        findings += _check_all(bed)
    if isinstance(bed, ClusterBed):
        findings += _compare_lag(bed)
    if isinstance(bed, AttackBed):
        findings += [Holds(DIFFERENCE, text) for text in bed.compare_honest_groups()]
    return [Holds(kind, text[:_SHOWN]) for kind, text in findings]


def _check_all(bed: FaultBed) -> Iterator[Holds]:
    """Compare all tables with the brokers and with the log."""
    yield from _verify(bed)
    log = _read_log(bed)
    yield from _losses(bed, log)
    yield from _compare_offsets(bed, log)
    fresh = {name: as_stored(bed.warehouse, name, rows) for name, rows in read_afresh(log).items()}
    yield from _compare_histories(bed, fresh)
    if not bed.compacting:
        yield from _compare_rows(_stored(bed, "groups"), fresh["groups"])


def _read_log(bed: FaultBed) -> list[RawRecord]:
    """Return the log, which the job has read to the same end."""
    with LogReader(bed.broker.bootstrap_server) as reader:
        log = reader.read()
        for _ in range(_ATTEMPTS):
            bed.settle()
            if not (more := reader.read()):  # else a session has timed out
                break
            log += more
    return log


def _verify(bed: FaultBed) -> list[Holds]:
    """Compare the rows with the brokers, as the command does."""
    found: list[str] = []
    for _ in range(_ATTEMPTS):
        own = WarehouseTables(bed.warehouse, CLUSTER)
        try:
            report = Verification(bed.client, own, MINUTES, lambda _: None).run()
        except VerifyError as error:  # a slow job was away for too long, and has just begun to read everything again
            found = [str(error)]
            bed.settle()
            continue
        found = [*map(str, report.differences), *map(str, report.not_compared)]
        if not found:
            break
    return [Holds(DIFFERENCE, f"verify: {text}") for text in found]


def _doubles(bed: Bed) -> Iterator[Holds]:
    for definition in tables():
        key = ", ".join(f'"{name}"' for name in definition.key)
        sql = f"SELECT {key}, count(*) AS n FROM {definition.name} GROUP BY {key} HAVING count(*) > 1"
        yield from (Holds(DOUBLE, f"{definition.name}: {row}") for row in bed.rows(sql))


def _losses(bed: Bed, log: list[RawRecord]) -> Iterator[Holds]:
    """Yield the records that are neither in the row of their group nor in quarantine."""
    last = {row["group_id"]: row["last_offset"] for row in bed.rows("SELECT group_id, last_offset FROM groups")}
    quarantined = {tuple(row.values()) for row in bed.rows('SELECT "partition", "offset" FROM quarantine')}
    for record in log:
        if (record.partition, record.offset) in quarantined or record.value is None:
            continue
        if record.record_type in UNKNOWN_TYPES:
            yield Holds(LOSS, f"not in quarantine: partition {record.partition}, offset {record.offset}")
        elif record.record_type in RECORD_TYPES and last.get(record.group_id, -1) < record.offset:
            yield Holds(LOSS, f"not in the row of {record.group_id!r}: type {record.record_type} at {record.offset}")


def _compare_offsets(bed: Bed, log: list[RawRecord]) -> Iterator[Holds]:
    """Compare the committed offsets with the newest records of the log, those of aborted transactions among them."""
    expected: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for raw in log:
        if raw.record_type == OFFSET_COMMIT:
            record = decode(raw.key, raw.value)
            key = record.key["group"], record.key["topic"], record.key["partition"]
            if record.value is None:
                expected.pop(key, None)
            else:
                expected[key] = tuple(record.value[name] for name in ("offset", "leader_epoch", "metadata"))
    columns = '"partition", committed_offset, coalesce(leader_epoch, -1) AS leader_epoch, metadata'
    rows = bed.rows(f"SELECT group_id, topic, {columns} FROM offsets")
    stored = {tuple(row.values())[:3]: tuple(row.values())[3:] for row in rows}
    for key in sorted(expected.keys() | stored.keys()):
        if stored.get(key) != expected.get(key):
            yield Holds(DIFFERENCE, f"offsets of {key}: {stored.get(key)} for {expected.get(key)}")


def _compare_lag(bed: ClusterBed) -> Iterator[Holds]:
    """Compare the application's lag with its coordinator and the ends of logs: here aborted commits do not count."""
    wrong: dict[tuple[str, int], tuple[Any, ...]] = {}

    def is_right() -> bool:
        ends = {topic: bed.client.end_offsets(topic) for topic in INPUTS}
        expected = {
            (key.topic, key.partition): (one.offset, ends[key.topic][key.partition])
            for key, one in bed.committed().items()
            if key.topic in ends
        }
        stored = {row[:2]: row[2:] for row in bed.lag_rows()}
        wrong.clear()
        wrong.update({key: (stored.get(key), values) for key, values in expected.items() if stored.get(key) != values})
        return bool(expected) and not wrong

    if not wait_until(is_right, interval=1.0):
        yield from (Holds(DIFFERENCE, f"lag of {key}: {one} for {other}") for key, (one, other) in wrong.items())


def _compare_histories(bed: FaultBed, fresh: Mapping[str, Rows]) -> Iterator[Holds]:
    """Compare every history table with the fresh one, where the log was not compacted."""
    first_kept = bed.cleaned_offsets()
    for definition in history_tables():
        rows, expected = (
            {_key(definition.name, row): row for row in _history(definition.name, rows, first_kept)}
            for rows in (_stored(bed, definition.name), fresh[definition.name])
        )
        for key in sorted(expected.keys() | rows.keys(), key=str):
            if key not in rows:
                yield Holds(LOSS, f"{definition.name} lacks {expected[key]}")
            elif key not in expected:
                yield Holds(DIFFERENCE, f"{definition.name} has {rows[key]}, and the log does not show it")
            elif rows[key] != expected[key]:
                differing = [name for name, value in rows[key].items() if value != expected[key][name]]
                yield Holds(DIFFERENCE, f"{definition.name} {key}: {differing}: {rows[key]} for {expected[key]}")


def as_stored(warehouse: Path, name: str, rows: Rows) -> Rows:
    """Return rows as they are read from a table: maps are dicts, for example."""
    schema = pa.schema(DeltaTable(warehouse / name).schema().to_arrow())
    return [
        {column: to_python(value, schema.field(column).type) for column, value in row.items()}
        for row in pa.Table.from_pylist(rows, schema).to_pylist()
    ]


def _stored(bed: Bed, name: str) -> Rows:
    names = ", ".join(f'"{column}"' for column in table(name).names)
    return bed.rows(f"SELECT {names} FROM {name}")


def _history(name: str, rows: Rows, first_kept: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Yield what records tell that exist: not what came from those that an unclean election removed."""
    definition = table(name)
    for row in rows:
        kept = first_kept.get(row[str(definition.partition_column)], 0)
        if row.get("kind") not in _NOT_COMPARED and row["offset"] >= kept and not row.get("void"):
            # Of several epochs without an assignment the compacted log has the last one only.
            known = {name: value for name, value in row.items() if name not in _FROM_BROKERS}
            yield {**known, _CAUSE: None} if kept and _CAUSE in row else known


def _key(name: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in table(name).key if column not in _FROM_BROKERS)


def _compare_rows(stored: Rows, fresh: Rows) -> Iterator[Holds]:
    rows, expected = ({row["group_id"]: row for row in of} for of in (stored, fresh))
    for group_id in sorted(expected.keys() | rows.keys()):
        row, other = rows.get(group_id), expected.get(group_id)
        if row is None or other is None:
            yield Holds(DIFFERENCE, f"{group_id!r}: only {'the log' if row is None else 'the job'} has the group")
            continue
        for name, value in row.items():
            if name not in {_NOT_FROM_LOG, *_FROM_BROKERS} and _comparable(value) != _comparable(other[name]):
                yield Holds(DIFFERENCE, f"{group_id!r} {name}: {value} for {other[name]}")


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        value = [one for one in value if not (isinstance(one, dict) and one.get("what") == _NOT_FROM_LOG)]
    return sort_list(value)


def read_afresh(log: Iterable[RawRecord]) -> Mapping[str, Rows]:
    """Return the rows of `groups` and of each table that a batch appends to, of a log that is read in one batch.

    Without Spark: its fold is plain Python.
    """
    options = FoldOptions(CLUSTER, TOPIC, partitions=PARTITIONS)
    tables: dict[str, Rows] = {name: [] for name in ("groups", *APPENDED)}
    records = sorted(map(_row, (raw for raw in log if raw.record_type in _READ)), key=itemgetter(0, 1))
    for _, of_group in groupby(records, key=itemgetter(0)):
        for folded in fold_group(of_group, options, None):
            found = {**folded.rows, EVENTS: events_of(folded.rows)}
            for name, rows in tables.items():
                rows.extend({column: one.get(column) for column in table(name).names} for one in found.get(name, ()))
    return tables


def _row(raw: RawRecord) -> LogRow:
    group_bytes = raw.key[4 : 4 + int.from_bytes(raw.key[2:4], "big")]
    at = _EPOCH + timedelta(milliseconds=raw.timestamp_ms)
    return group_bytes, raw.offset, raw.partition, at, raw.key, raw.value, None

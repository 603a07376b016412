"""Compares the tables of a running job with the broker, and with the fold of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streaming_app.checks.compare import Row
from streaming_app.checks.verification import SystemClock, VerifyError, WarehouseTables, verify
from streaming_app.groups.group import Event
from streaming_app.groups.row import from_row, to_row
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.tables.checkpoint_offsets import CheckpointOffsets
from streaming_app.tables.reader import WarehouseReader
from tests.long.faults.job import JobProcess
from tests.long.faults.operated_groups import OperatedGroups, sort_list
from tests.support.event_chain import gaps
from tests.support.waiting import wait_until

_CLUSTER = "default"
_START_SECONDS = 600.0
_VERIFY_SECONDS = 600.0
_ATTEMPTS = 3  # a group may change while it is compared, because of the broker's own timers
_EVENT_COLUMNS = ", ".join(f'"{name}"' for name in ("group_id", *Event._fields))
# A column, change and event that depends on the topics when the job requested them, and what brokers say of records.
_NOT_FROM_LOG = {"not_ready_reason", "log_epoch"}
_NOT_FROM_FOLD = _NOT_FROM_LOG | {"group_type"}  # events that the stream of the committed offsets writes


def find_differences(job: JobProcess, client: StreamsGroupClient, operated: OperatedGroups) -> list[str]:
    """Wait until a running job has caught up; then compare its tables with the broker, and with the fold.

    Every event and every column must equal those of the fold.
    """
    found: list[str] = []
    for _ in range(_ATTEMPTS):
        found = list(_compare_with_broker(job, client, operated.groups))
        if job.unexpected_exit:
            return [job.unexpected_exit]
        operated.read()
        found += _compare_with_fold(job, operated)
        if not found:
            break
    return found


def _compare_with_broker(job: JobProcess, client: StreamsGroupClient, groups: list[str]) -> Iterator[str]:
    tables = WarehouseTables(job.warehouse, _CLUSTER)
    if not wait_until(lambda: bool(job.unexpected_exit or tables.checkpoint_offsets()), _START_SECONDS):
        yield f"no batch in {_START_SECONDS} s: {job.output[-2000:]}"
    elif not job.unexpected_exit:
        brokers, own_tables = _GroupsOnBrokers(client, groups), _GroupsInTables(tables, groups)
        try:
            report = verify(brokers, own_tables, SystemClock(), _VERIFY_SECONDS, lambda _: None)
        except VerifyError as error:
            yield str(error)
        else:
            yield from map(str, (*report.differences, *report.not_compared))


def _compare_with_fold(job: JobProcess, operated: OperatedGroups) -> Iterator[str]:
    reader = WarehouseReader(job.warehouse)
    rows = {row["group_id"]: row for row in reader.query("SELECT * FROM groups").to_pylist()}
    events: dict[str, list[Event]] = {}
    for stored in reader.query(f"SELECT {_EVENT_COLUMNS} FROM group_events").to_pylist():
        events.setdefault(stored.pop("group_id"), []).append(Event(**stored))
    for group_id in operated.groups:
        row, group_events = rows.get(group_id), events.get(group_id, [])
        yield from gaps(group_id, group_events, row)
        yield from _compare_exactly(group_id, row, group_events, operated)


def _compare_exactly(group_id: str, row: Row | None, events: list[Event], operated: OperatedGroups) -> Iterator[str]:
    folded = operated.row(group_id)
    if row is None or folded is None:
        if row is not folded:
            yield f"{group_id}: only {'the fold' if row is None else 'the job'} has a row"
        return
    written = to_row(_CLUSTER, from_row(dict(row)))
    written["last_changes"] = [change for change in written["last_changes"] if change["what"] not in _NOT_FROM_LOG]
    for name, value in folded.items():
        if name not in _NOT_FROM_LOG and sort_list(written[name]) != sort_list(value):
            yield f"{group_id} {name}: {written[name]} from the job, {value} from the fold"
    of_fold = set(operated.events(group_id))
    of_job = {event for event in events if event.kind not in _NOT_FROM_FOLD}
    yield from (f"{group_id}: only from the job: {event}" for event in of_job - of_fold)
    yield from (f"{group_id}: only from the fold: {event}" for event in of_fold - of_job)


class _GroupsOnBrokers(NamedTuple):
    """These groups of a cluster; other tests use the same cluster."""

    client: StreamsGroupClient
    groups: list[str]

    def list_groups(self) -> Iterable[str]:
        return self.groups

    def describe(self, group_ids: Iterable[str]) -> list[dict[str, Any]]:
        return self.client.describe(group_ids)

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        return self.client.end_offsets(topic)


class _GroupsInTables(NamedTuple):
    """These groups in the tables; other tests add groups to the same cluster."""

    tables: WarehouseTables
    groups: list[str]

    def checkpoint_offsets(self) -> CheckpointOffsets | None:
        return self.tables.checkpoint_offsets()

    def group_ids(self) -> list[str]:
        return [group_id for group_id in self.tables.group_ids() if group_id in self.groups]

    def partial_groups(self) -> dict[str, str]:
        return self.tables.partial_groups()

    def rows(self, group_ids: Sequence[str]) -> Mapping[str, Row]:
        return self.tables.rows(group_ids)

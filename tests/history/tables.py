"""What a running job's tables say, against the broker, and against the fold of the log that the pure core makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from streaming_app.cli.verify import _Clock, _Tables
from streaming_app.core.life import Event
from streaming_app.core.row import from_row, to_row
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.serve.position import Position
from streaming_app.serve.warehouse import Warehouse
from streaming_app.verify.agreement import VerifyError, verify
from tests.history.chain import gaps
from tests.history.history import History, unordered
from tests.history.job import Job
from tests.waiting import wait_until

_CLUSTER = "default"
_START_SECONDS = 600.0
_VERIFY_SECONDS = 600.0
_LOOKS = 3  # a group may change while it is compared, for nobody stops the broker's own timers
_EVENT_COLUMNS = ", ".join(f'"{name}"' for name in ("group_id", *Event._fields))
_ASKED_OF_THE_CLUSTER = {"not_ready_reason"}  # column, change and event: what topics there were when the job looked


def disagreements(job: Job, client: StreamsGroupClient, history: History, *, exactly: bool) -> list[str]:
    """Wait until a running job has passed what there is; then compare it with the broker, and with the fold.

    `exactly`: every event and every column is the fold's. Otherwise, as after compaction, where the job may have read
    less than the fold, the job's events must form a history of their own.
    """
    found: list[str] = []
    for _ in range(_LOOKS):
        found = list(_against_broker(job, client, history.groups))
        if job.died:
            return [job.died]
        history.read()
        found += _against_fold(job, history, exactly=exactly)
        if not found:
            break
    return found


def _against_broker(job: Job, client: StreamsGroupClient, groups: list[str]) -> Iterator[str]:
    tables = _Tables(job.warehouse, _CLUSTER)
    if not wait_until(lambda: bool(job.died or tables.position()), _START_SECONDS):
        yield f"no batch in {_START_SECONDS} s: {job.said[-2000:]}"
    elif not job.died:
        try:
            report = verify(_Brokers(client, groups), _Of(tables, groups), _Clock(), _VERIFY_SECONDS, lambda _: None)
        except VerifyError as error:
            yield str(error)
        else:
            yield from map(str, (*report.differences, *report.not_compared))


def _against_fold(job: Job, history: History, *, exactly: bool) -> Iterator[str]:
    opened = Warehouse(job.warehouse)
    rows = {row["group_id"]: row for row in opened.query("SELECT * FROM groups").to_pylist()}
    events: dict[str, list[Event]] = {}
    for told in opened.query(f"SELECT {_EVENT_COLUMNS} FROM group_events").to_pylist():
        events.setdefault(told.pop("group_id"), []).append(Event(**told))
    for group_id in history.groups:
        row, told = rows.get(group_id), events.get(group_id, [])
        yield from gaps(group_id, told, row)
        if exactly:
            yield from _unlike(group_id, row, told, history)


def _unlike(group_id: str, row: Mapping[str, Any] | None, told: list[Event], history: History) -> Iterator[str]:
    folded = history.row(group_id)
    if row is None or folded is None:
        if row is not folded:
            yield f"{group_id}: the job has {'no' if row is None else 'a'} row, and the fold has the other"
        return
    as_folded = to_row(_CLUSTER, from_row(dict(row)))
    changes = [change for change in as_folded["last_changes"] if change["what"] not in _ASKED_OF_THE_CLUSTER]
    as_folded["last_changes"] = changes
    for name, value in folded.items():
        if name not in _ASKED_OF_THE_CLUSTER and unordered(as_folded[name]) != unordered(value):
            yield f"{group_id} {name}: the job says {as_folded[name]}, the fold {value}"
    fold = set(history.events(group_id))
    job = {event for event in told if event.kind not in _ASKED_OF_THE_CLUSTER}
    yield from (f"{group_id}: only the job tells {event}" for event in job - fold)
    yield from (f"{group_id}: the job does not tell {event}" for event in fold - job)


class _Brokers(NamedTuple):
    """A cluster of which other tests use the rest."""

    client: StreamsGroupClient
    groups: list[str]

    def list_groups(self) -> Iterable[str]:
        return self.groups

    def describe(self, group_ids: Iterable[str]) -> list[dict[str, Any]]:
        return self.client.describe(group_ids)

    def end_offsets(self, topic: str) -> Mapping[int, int]:
        return self.client.end_offsets(topic)


class _Of(NamedTuple):
    """Tables of which other tests fill the rest."""

    tables: _Tables
    groups: list[str]

    def position(self) -> Position | None:
        return self.tables.position()

    def alive(self) -> list[str]:
        return [group_id for group_id in self.tables.alive() if group_id in self.groups]

    def rows(self, first: str, last: str) -> Mapping[str, Mapping[str, Any]]:
        return self.tables.rows(first, last)

"""The service that fetches the stored topology descriptions (KIP-1331), and keeps the table `descriptions`.

Theory of operation
-------------------
The log says when a description was stored; the brokers' plugin has its content. So the service asks for a group once
each time the log says so, one group per request and at most `_MOST` per pass, since each request is a call of the
plugin. A group whose coordinator does not answer comes after all others from then on.

It asks again once a day: a plugin can lose a description or fail to return it, and the log does not show that.
Then the fetched description stays, with the status that the broker returned, and the service asks again after an hour.
`lost` reports such groups to the rules.

The rows of the groups of a pass are replaced in one commit. So if the job dies, the table has the old rows or the new
ones, and the job asks again. Rows that were not confirmed within the retention are removed: they belong to descriptions
that were replaced, or to deleted groups.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from streaming_app.alerts.engine_facts import LostDescription
from streaming_app.groups.description import AVAILABLE, STATUSES, describe_topology, graph_of
from streaming_app.groups.snapshot import GroupSnapshot
from streaming_app.groups.state_rules import DEAD
from streaming_app.job.service import Job, Poller
from streaming_app.kafka import AUTHORIZATION_CODES
from streaming_app.kafka.protocol import Fields
from streaming_app.tables.reader import quote
from streaming_app.tables.rust_table import RustTable
from streaming_app.text import EPOCH, count

NAME = "descriptions"
_NEEDS = "topology descriptions need Describe on the groups and on their topics"
_MOST = 60
"""The most groups that a pass asks for."""
_FAILURES_IN_A_ROW = 3  # groups: then the brokers are away, and each further one would only time out
_MOST_CHARACTERS = 10_000_000  # of the texts of a pass, after which it ends: they stay in memory until they are written
_CONFIRMED, _RETRIED = timedelta(days=1), timedelta(hours=1)
_STORED = "CURRENT"

_Asked = dict[str, Any]
"""When and about what a group was last asked: the columns topology_epoch, stored_at, asked_at, status, status_since.

The status is None if the broker returned none: the group may not be described, is gone, or the broker is older.
"""


class DescriptionsService(Poller):
    """Fetches from `start` to `close`."""

    def __init__(self, job: Job) -> None:
        super().__init__(NAME, job, _NEEDS)
        self._table = RustTable(job.config.warehouse / NAME, job.config.cluster, job.fence)
        self._asked: dict[str, _Asked] | None = None
        self._lost: Mapping[str, LostDescription] | None = None
        self._unanswered: set[str] = set()  # groups whose coordinators did not answer when they were last asked

    def lost(self) -> Mapping[str, LostDescription] | None:
        """Return by group the stored description that the plugin did not return; None before the first pass."""
        return self._lost

    def tick(self) -> None:
        """Make one pass. Raises the errors of tables, and errors of brokers that do not answer."""
        if self._asked is None:
            columns = "topology_epoch, stored_at, asked_at, status, coalesce(status_since, asked_at) AS status_since"
            rows = self._job.rows(NAME, f"group_id, {columns}", "is_newest")
            self._asked = {row.pop("group_id"): row for row in rows}
        asked, now = self._asked, self._now()
        groups = {
            group.group_id: group
            for group in self._job.groups().values()
            if group.description_status == _STORED and group.state != DEAD
        }
        for group_id in asked.keys() - groups.keys():
            del asked[group_id]
        due = [group for group in groups.values() if _is_due(group, asked.get(group.group_id), now)]
        self._unanswered &= groups.keys()
        due.sort(key=lambda one: (one.group_id in self._unanswered, *_order(one, asked.get(one.group_id))))
        found, failure = self._fetch(due[:_MOST], now) if due else ({}, None)
        self._write(found)
        self._lost = {
            group_id: LostDescription(one["status"], one["topology_epoch"], one["status_since"])
            for group_id, one in asked.items()
            if one["status"] not in {None, AVAILABLE}
        }
        if failure:
            raise failure

    def _fetch(self, due: list[GroupSnapshot], now: datetime) -> tuple[dict[str, dict[str, Any]], Exception | None]:
        """Return the new columns of each group, and an error if a broker did not answer; note the requests."""
        found: dict[str, dict[str, Any]] = {}
        failure: Exception | None = None
        denied, characters, failed = 0, 0, 0
        with self._job.connection.use() as client:
            for group in due:
                if self.stopping.is_set() or characters > _MOST_CHARACTERS or failed == _FAILURES_IN_A_ROW:
                    break
                try:
                    (answer,) = client.describe([group.group_id], include_topology_description=True)
                except Exception as error:  # noqa: BLE001 - whatever kafka-python raises; the fetched ones are kept
                    failure, failed = error, failed + 1
                    self._unanswered.add(group.group_id)
                    continue
                failed = 0
                self._unanswered.discard(group.group_id)
                denied += answer["error_code"] in AUTHORIZATION_CODES
                row = _row(group, answer, now)
                status = row["status"] if row else None
                known = self._note(group, now, status)
                if row:
                    row["status_since"] = known["status_since"]
                    found[group.group_id] = row
                    characters += len(row.get("text") or "")
            if failure:
                self._job.connection.failed(client)
        if denied:
            groups = count(denied, "stored description", "stored descriptions")
            self.report_denied(f"{groups} may not be read: {_NEEDS}")
        return found, failure

    def _note(self, group: GroupSnapshot, now: datetime, status: str | None) -> _Asked:
        assert self._asked is not None  # noqa: S101 - read before the first request
        before, stored_at = self._asked.get(group.group_id), _stored_at(group)
        is_same = before and (before["status"], before["stored_at"]) == (status, stored_at)
        asked = self._asked[group.group_id] = {
            "topology_epoch": group.topology_epoch,
            "stored_at": stored_at,
            "asked_at": now,
            "status": status,
            "status_since": before["status_since"] if before and is_same else now,
        }
        return asked

    def _write(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        if not found or self.stopping.is_set():
            return
        condition = f"group_id IN ({', '.join(map(quote, sorted(found)))})"
        stored: dict[str, list[dict[str, Any]]] = {group_id: [] for group_id in found}
        for row in self._job.rows(NAME, "*", condition):
            stored[row["group_id"]].append(row)
        rows = ({**row, "group_id": one} for one, new in found.items() for row in _merged(stored[one], new))
        self._table.replace(self._table.to_table(rows), condition)


def _stored_at(group: GroupSnapshot) -> datetime | None:
    """Return when the description was stored by the log, or when another one was pushed in its place."""
    times = (group.description_since, group.last_unsolicited_push_at)
    return max((time for time in times if time is not None), default=None)


def _is_due(group: GroupSnapshot, asked: _Asked | None, now: datetime) -> bool:
    if asked is None or (asked["topology_epoch"], asked["stored_at"]) != (group.topology_epoch, _stored_at(group)):
        return True
    age: timedelta = now - asked["asked_at"]
    return age >= (_CONFIRMED if asked["status"] == AVAILABLE else _RETRIED)


def _order(group: GroupSnapshot, asked: _Asked | None) -> tuple[bool, datetime, str]:
    return asked is not None, asked["asked_at"] if asked else group.first_seen_at or EPOCH, group.group_id


def _row(group: GroupSnapshot, answer: Fields, now: datetime) -> dict[str, Any] | None:
    """Return the columns that a broker's answer gives about the description; None if it says nothing about one."""
    status = STATUSES.get(answer.get("topology_description_status", 0))
    if answer["error_code"] or status is None:
        return None
    topology = answer.get("topology")
    row = {
        "topology_epoch": topology["epoch"] if topology else group.topology_epoch,
        "content_hash": None,
        "status": status,
        "asked_at": now,
        "stored_at": _stored_at(group),
        "is_newest": True,
    }
    description = answer.get("topology_description")
    if status != AVAILABLE or description is None:
        return row
    graph = graph_of(description)
    return row | graph | {"text": None if graph["truncated"] else describe_topology(description), "fetched_at": now}


def _merged(stored: list[dict[str, Any]], new: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a group with `new`: earlier descriptions stay, as does one that the plugin lost."""
    newest = next((row for row in stored if row["is_newest"]), None)
    if new["content_hash"] is None and newest and newest["topology_epoch"] == new["topology_epoch"]:
        new = {**newest, **{name: new[name] for name in ("status", "status_since", "asked_at", "stored_at")}}
    yield new
    same = new["topology_epoch"], new["content_hash"]
    for row in stored:
        if row["content_hash"] is not None and (row["topology_epoch"], row["content_hash"]) != same:
            yield {**row, "is_newest": False}

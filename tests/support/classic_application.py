"""Real applications with the classic protocol: what they say of themselves, and what the log has of their group.

The client itself prints its tasks (`metadataForLocalThreads`); a thread's name has the id of its process.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from offsets_decoder import decode
from offsets_decoder.streams_protocol import decode_subscription
from streaming_app.groups.fold import CLASSIC_GROUP
from streaming_app.groups.replay import RECORD_TYPES
from streaming_app.stream.batch_rows import events_of
from streaming_app.stream.fold_stage import fold_group
from streaming_app.stream.group_result import FoldOptions
from tests.support.offsets_log import RawRecord, read_log
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

Thread = tuple[str, list[str], list[str]]
"""Id of the process, active tasks, standbys with warm-ups."""
Settled = tuple[dict[str, Any], list[dict[str, Any]]]
PROPERTIES = {
    "group.protocol": "classic",
    "num.stream.threads": "2",
    "num.standby.replicas": "1",
    "application.server": "localhost:31401",
    "client.tag.zone": "a",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "commit.interval.ms": "200",
}
_PROCESS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=-StreamThread-)")


def row_of(records: list[RawRecord]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the row of a group and its events, from its records."""
    rows = (
        (one.group_id.encode(), one.offset, one.partition, _time(one.timestamp_ms), one.key, one.value, None)
        for one in records
        if one.record_type in {CLASSIC_GROUP, *RECORD_TYPES}
    )
    found = next(iter(fold_group(rows, FoldOptions("default", "topic"), None)), None)
    assert not found or not found.rows["quarantine"]
    return (found.rows["groups"][0], list(events_of(found.rows))) if found else (None, [])


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def threads_of_row(row: dict[str, Any]) -> dict[str, Thread]:
    """Return the threads of a group by their name; none while two have the same: an old one is gone."""
    by_member = {one["member_id"]: (one["process_id"], list[str](), list[str]()) for one in row["members"]}
    for one in row["assignments"]:
        if one["current"]:
            task = f"{one['subtopology_id']}_{one['partition']}"
            by_member[one["member_id"]][1 if one["role"] == "active" else 2].append(task)
    found = {one["client_id"].removesuffix("-consumer"): _sorted(by_member[one["member_id"]]) for one in row["members"]}
    return found if len(found) == len(by_member) else {}


def threads_of(applications: Sequence[StreamsApplication]) -> dict[str, Thread]:
    """Return what the applications themselves say of their threads."""
    found = {}
    for application in applications:
        for thread in (thread for instance in application.tasks() for thread in instance["threads"]):
            process = _PROCESS.search(thread["name"])
            assert process, thread
            found[thread["name"]] = _sorted((process[0], thread["active"], thread["standby"]))
    return found


def _sorted(thread: Thread) -> Thread:
    return thread[0], sorted(thread[1]), sorted(thread[2])


@dataclass
class ClassicGroup:
    """The group of applications that run. `active` tasks and `standbys` are numbers of them all; None: any."""

    server: str
    applications: list[StreamsApplication]
    threads: int
    active: int
    standbys: int | None

    def read(self) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        return row_of(read_log(self.server, self.applications[0].application_id))

    def row(self) -> dict[str, Any]:
        row, _ = self.read()
        assert row
        return row

    def used_versions(self) -> list[list[int]]:
        """Return the versions that the members wrote in each record with members, in the order of the log."""
        records = [one for one in read_log(self.server, self.applications[0].application_id) if one.record_type == 2]
        values = (decode(one.key, one.value).value for one in records)
        told = ([decode_subscription(one["subscription"]) for one in value["members"]] for value in values if value)
        return [sorted(one.version for one in of_each if one) for of_each in told if of_each]

    def settled(
        self, condition: Callable[[dict[str, Any]], bool] = lambda row: not row["probing_rebalance_at"]
    ) -> Settled:
        """Wait until all tasks have an owner, and the applications have what the log has; return row and events."""
        last: list[Any] = []

        def is_settled() -> bool:
            row, events = self.read()
            if not row or row["tasks_moving"] or len(row["members"]) != self.threads or not condition(row):
                last[:] = [row]
                return False
            ours, theirs = threads_of_row(row), threads_of(self.applications)
            last[:] = [row, events, ours, theirs]
            numbers = (sum(len(one[1]) for one in ours.values()), sum(len(one[2]) for one in ours.values()))
            expected = (self.active, numbers[1] if self.standbys is None else self.standbys)
            return numbers == expected and ours == theirs

        assert wait_until(is_settled, interval=0.5), last
        row, events, ours, _ = last
        assert row["undecoded_members"] == 0
        print(f"{row['group_id']}: {len(ours)} threads are equal")
        return row, events

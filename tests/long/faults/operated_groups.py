"""Random operations, and the fold of the resulting log compared with the broker's descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streaming_app.checks.compare import Difference, Row, differences, fields_of_description
from streaming_app.groups.group import Event
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields
from tests.long.faults.operations import Operations
from tests.support.event_chain import gaps
from tests.support.offsets_log import FoldedLog, LogReader, RawRecord
from tests.support.waiting import wait_until


class OperatedGroups(Operations):
    """Operations with the resulting log and its fold. Call `compare` after some of them, and `close` at the end."""

    def __init__(self, client: StreamsGroupClient, server: str, seed: int, prefix: str = "", groups: int = 6) -> None:
        super().__init__(client, server, seed, prefix, groups)
        self.log: list[RawRecord] = []
        self.folded = FoldedLog()
        self.reader = LogReader(server)
        self.described: list[Fields] = []
        """What the broker said when the log was last compared with it: an assignment may follow by itself."""

    def close(self) -> None:
        self.reader.close()

    def compare(self) -> list[Difference]:
        """Read and fold the new records, and compare every group with the broker."""

        def is_steady() -> bool:
            self.described = self.client.describe(self.groups)
            self.read()
            after = self.client.describe(self.groups)
            return list(map(fields_of_description, self.described)) == list(map(fields_of_description, after))

        wait_until(is_steady, interval=0.1)
        return compare_rows(self.folded.rows, self.described)

    def row(self, group_id: str) -> dict[str, Any] | None:
        return self.folded.rows.get(group_id)

    def read(self) -> None:
        """Fold the new records of the log, in batches of random size."""
        records = [raw for raw in self.reader.read() if raw.group_id in self.groups]
        self.log += records
        while records:
            size = self.random.choice((1, 1, 2, 3, 5, 10, 50))
            self.folded.add(records[:size])
            records = records[size:]

    def gaps(self) -> list[str]:
        """Return where the events of a group do not follow from one another, or the last ones differ from the row."""
        return [gap for group_id in self.groups for gap in gaps(group_id, self.events(group_id), self.row(group_id))]

    def events(self, group_id: str) -> list[Event]:
        return self.folded.events.get(group_id, [])

    def compare_single_batch(self) -> list[str]:
        """Return what differs when the same log is folded in a single batch."""
        single = FoldedLog()
        single.add(self.log)
        rows = self.folded.rows
        found = [
            f"{group_id} {name}: {rows[group_id][name]} in many batches, {value} in a single one"
            for group_id, row in single.rows.items()
            for name, value in row.items()
            if sort_list(value) != sort_list(rows[group_id][name])
        ]
        for group_id, events in single.events.items():
            in_many_batches = set(self.folded.events[group_id])
            found += [f"{group_id}: only in many batches: {event}" for event in in_many_batches - set(events)]
            found += [f"{group_id}: only in a single batch: {event}" for event in set(events) - in_many_batches]
        return found


def compare_rows(rows: Mapping[str, Row], descriptions: Iterable[Fields]) -> list[Difference]:
    """Return every difference between these groups' descriptions and their rows."""
    return [
        difference
        for description in descriptions
        for difference in differences(description["group_id"], rows.get(description["group_id"]), description)
    ]


def sort_list(value: Any) -> Any:
    """Return lists sorted: members, tasks and changes have no order."""
    return sorted(value, key=str) if isinstance(value, list) else value

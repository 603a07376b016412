"""A random history and what the pure core makes of its log, compared with what the broker says."""

from __future__ import annotations

import time
from typing import Any

from streaming_app.core.life import Event
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.messages import Fields
from streaming_app.verify.compare import Difference, differences, facts_of_described
from tests.history.chain import gaps
from tests.history.log import Folded, LogReader, Raw
from tests.history.operations import Operations

_LOOKS = 20  # until the broker says the same before and after the log was read


class History(Operations):
    """Operations, with the log that they left and its fold. Call `rest` now and then, and `close` at the end."""

    def __init__(self, client: StreamsGroupClient, server: str, seed: int, prefix: str = "", groups: int = 6) -> None:
        super().__init__(client, server, seed, prefix, groups)
        self.log: list[Raw] = []
        self.folded = Folded()
        self.reader = LogReader(server)

    def close(self) -> None:
        self.reader.close()

    def rest(self) -> list[Difference]:
        """Read what is new, fold it, and compare every group with the broker."""
        told: list[Fields] = []
        for _ in range(_LOOKS):
            told = self.client.describe(self.groups)
            self.read()
            if list(map(facts_of_described, told)) == list(map(facts_of_described, self.client.describe(self.groups))):
                break
            time.sleep(0.1)
        return [one for group in told for one in differences(group["group_id"], self.row(group["group_id"]), group)]

    def row(self, group_id: str) -> dict[str, Any] | None:
        return self.folded.rows.get(group_id)

    def read(self) -> None:
        """Fold what is new in the log, in batches cut anywhere."""
        ours = [raw for raw in self.reader.read() if raw.group_id in self.groups]
        self.log += ours
        while ours:
            size = self.random.choice((1, 1, 2, 3, 5, 10, 50))
            self.folded.add(ours[:size])
            ours = ours[size:]

    def rest_compacted(self) -> list[Difference]:
        """As if the log had been compacted before anybody read it: of each key the newest, some tombstones gone."""
        newest = {raw.key: raw for raw in self.log}
        fresh = Folded()
        fresh.add(
            raw for raw in self.log if newest[raw.key] is raw and (raw.value is not None or self.random.random() < 0.5)
        )
        told = self.client.describe(self.groups)
        return [
            one for group in told for one in differences(group["group_id"], fresh.rows.get(group["group_id"]), group)
        ]

    def gaps(self) -> list[str]:
        """Where the events of a group do not follow from one another, or do not end where the row is."""
        return [gap for group_id in self.groups for gap in gaps(group_id, self.events(group_id), self.row(group_id))]

    def events(self, group_id: str) -> list[Event]:
        return self.folded.events.get(group_id, [])

    def uneven(self) -> list[str]:
        """What comes out otherwise when the same log is folded in one batch."""
        whole = Folded()
        whole.add(self.log)
        rows = self.folded.rows
        told = [
            f"{group_id} {name}: {rows[group_id][name]} in batches, {value} in one"
            for group_id, row in whole.rows.items()
            for name, value in row.items()
            if unordered(value) != unordered(rows[group_id][name])
        ]
        for group_id, events in whole.events.items():
            cut = set(self.folded.events[group_id])
            told += [f"{group_id}: only in batches {event}" for event in cut - set(events)]
            told += [f"{group_id}: only in one {event}" for event in set(events) - cut]
        return told


def unordered(value: Any) -> Any:
    """Members, tasks and changes have no order."""
    return sorted(value, key=str) if isinstance(value, list) else value

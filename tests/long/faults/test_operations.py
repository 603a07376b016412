"""Random operations on a broker: the fold of its log is compared with what it says of its groups.

OPERATIONS is how many, SEED of what. The broker is restarted and killed from time to time, and its log is compacted all
the time. New records are folded in batches of random size.
"""

import os
from collections.abc import Callable
from random import Random

import pytest

from streaming_app.checks.compare import fields_of_description
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields
from streaming_app.sandbox.broker import LocalBroker
from tests.long.faults.bed import COMPACTING
from tests.long.faults.operations import Operations
from tests.support.event_chain import gaps
from tests.support.offsets_log import FoldedLog, LogReader, compare_rows, read_log
from tests.support.waiting import wait_until

OPERATIONS, SEED = int(os.environ.get("OPERATIONS", "600")), int(os.environ.get("SEED", "1"))
COMPARE_EVERY, RESTART_EVERY = 10, 200
PROPERTIES = {**COMPACTING, "log.cleaner.delete.retention.ms": "1000"}


class OperatedGroups(Operations):
    """Operations with the resulting log and its fold."""

    def __init__(self, client: StreamsGroupClient, server: str, seed: int) -> None:
        super().__init__(client, server, seed)
        self.records = 0
        self.folded, self.reader = FoldedLog(), LogReader(server)
        self._sizes = Random(f"{seed} sizes")  # noqa: S311 - no secret; it is asked as often as this machine is fast

    def compare(self) -> list[str]:
        """Read and fold the new records, and compare every group with the broker, and its events with its row."""
        described: list[Fields] = []  # an assignment may follow by itself

        def is_steady() -> bool:
            described[:] = self.client.describe(self.groups)
            self._read()
            after = self.client.describe(self.groups)
            return list(map(fields_of_description, described)) == list(map(fields_of_description, after))

        wait_until(is_steady, interval=0.1)
        rows, events = self.folded.rows, self.folded.events
        differences = map(str, compare_rows(rows, described))
        return [*differences, *(gap for one in self.groups for gap in gaps(one, events.get(one, []), rows.get(one)))]

    def _read(self) -> None:
        """Fold the new records of the log, in batches of random size."""
        records = [raw for raw in self.reader.read() if raw.group_id in self.groups]
        self.records += len(records)
        while records:
            size = self._sizes.choice((1, 1, 2, 3, 5, 10, 50))
            self.folded.add(records[:size])
            records = records[size:]


@pytest.mark.broker
@pytest.mark.timeout(0)  # as many as one likes
def test_after_random_operations_the_fold_equals_the_descriptions_of_the_broker(
    start_broker: Callable[..., LocalBroker],
) -> None:
    broker = start_broker(properties=PROPERTIES)
    server = broker.bootstrap_server
    with StreamsGroupClient(server) as client:
        operated = OperatedGroups(client, server, SEED)
        with operated.reader:
            for number in range(1, OPERATIONS + 1):
                operated.step()
                if number % RESTART_EVERY == 0:
                    (broker.kill if number // RESTART_EVERY % 2 else broker.stop)()
                    broker.start()
                    operated.reader.reopen()
                if number % COMPARE_EVERY == 0:
                    assert operated.compare() == [], f"after {number} operations of seed {SEED}"
        kept, compacted = read_log(server), FoldedLog()
        compacted.add(kept)
        assert compare_rows(compacted.rows, client.describe(operated.groups)) == []
        assert len(kept) < operated.records
        assert operated.records > OPERATIONS
        states = {event.new for events in operated.folded.events.values() for event in events if event.kind == "state"}
        assert {"Stable", "Dead"} <= states

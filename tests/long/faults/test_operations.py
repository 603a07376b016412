"""Random operations on a broker: the fold of its log is compared with what it says of its groups.

OPERATIONS is how many, SEED of what. The broker is restarted and killed from time to time, and its log is compacted all
the time. New records are folded in batches of random size.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from tests.long.faults.operated_groups import OperatedGroups
from tests.support.offsets_log import FoldedLog, compare_rows, read_log

OPERATIONS, SEED = int(os.environ.get("OPERATIONS", "600")), int(os.environ.get("SEED", "1"))
COMPARE_EVERY, RESTART_EVERY = 10, 200
COMPACTING = {
    "log.roll.ms": "3000",  # the newest segment is never compacted
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.delete.retention.ms": "1000",
}


@pytest.mark.broker
@pytest.mark.timeout(0)  # as many as one likes
def test_after_random_operations_the_fold_equals_the_descriptions_of_the_broker(
    start_broker: Callable[..., LocalBroker],
) -> None:
    broker = start_broker(properties=COMPACTING)
    server = broker.bootstrap_server
    with StreamsGroupClient(server) as client, closing(OperatedGroups(client, server, SEED)) as operated:
        for number in range(1, OPERATIONS + 1):
            operated.step()
            if number % RESTART_EVERY == 0:
                (broker.kill if number // RESTART_EVERY % 2 else broker.stop)()
                broker.start()
                operated.reader.reopen()
            if number % COMPARE_EVERY == 0:
                found = [*map(str, operated.compare()), *operated.gaps()]
                assert found == [], f"after {number} operations of seed {SEED}"
        assert operated.compare_single_batch() == []
        kept, compacted = read_log(server), FoldedLog()
        compacted.add(kept)
        assert compare_rows(compacted.rows, client.describe(operated.groups)) == []
        assert len(kept) < len(operated.log)
        assert len(operated.log) > OPERATIONS
        states = {event.new for events in operated.folded.events.values() for event in events if event.kind == "state"}
        assert {"Stable", "Dead"} <= states

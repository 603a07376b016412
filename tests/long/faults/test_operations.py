"""A few hundred random operations on the shared broker; `python -m tests.long.faults.operate` runs more of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from tests.long.faults.job import JobProcess, StartOptions
from tests.long.faults.job_tables import find_differences
from tests.long.faults.operated_groups import OperatedGroups
from tests.support.running_job import is_caught_up
from tests.support.waiting import wait_until

OPERATIONS, COMPARE_EVERY = 300, 10


@pytest.mark.broker
@pytest.mark.parametrize("seed", [1, 2])
def test_after_random_operations_the_fold_equals_the_descriptions_of_the_broker(
    seed: int, broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    operated = OperatedGroups(client, broker.bootstrap_server, seed, unique("h") + "-")
    try:
        for number in range(1, OPERATIONS + 1):
            operated.step()
            if number % COMPARE_EVERY == 0:
                assert [str(one) for one in operated.compare()] == [], f"after {number} operations of seed {seed}"
        assert [str(one) for one in operated.compare_compacted()] == []
        assert operated.gaps() == []
        assert operated.compare_single_batch() == []
        states = {event.new for events in operated.folded.events.values() for event in events if event.kind == "state"}
        assert {"Stable", "Dead"} <= states
        assert len(operated.log) > OPERATIONS
    finally:
        operated.close()


@pytest.mark.broker
def test_a_job_that_is_killed_writes_every_event_once_and_reports_a_killed_jvm_in_one_line(
    broker: Broker,
    client: StreamsGroupClient,
    unique: Callable[[str], str],
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
) -> None:
    operated = OperatedGroups(client, broker.bootstrap_server, 3, unique("h") + "-", groups=3)
    job = JobProcess(broker.bootstrap_server, tmp_path / "warehouse", tmp_path / "job.log")
    create_warehouse(job.warehouse)

    def run(operations: int) -> None:
        for _ in range(operations):
            operated.step()

    try:
        run(40)
        job.start()
        run(20)
        assert find_differences(job, client, operated) == []
        run(60)
        # If it did not know when it was last at the end of the topic, the next one would read all, ten offsets a batch.
        assert wait_until(lambda: is_caught_up(job.warehouse))
        assert job.kill() is None
        run(20)
        job.start(StartOptions(("--max-offsets-per-trigger", "10")))  # splits operations
        assert find_differences(job, client, operated) == []
        assert job.kill_jvm() is None
        assert job.output.splitlines()[-1].startswith("Error: Spark's JVM has exited: was it killed, or ")
        assert "Traceback" not in job.output
    finally:
        job.close()
        operated.close()

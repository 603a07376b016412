"""A few hundred random operations on the shared broker; `python -m tests.history.driver` does any number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_app.local.container import Broker
from streaming_app.protocol.client import StreamsGroupClient
from tests.history.history import History
from tests.history.job import Job, Start
from tests.history.tables import disagreements

OPERATIONS, REST_EVERY = 300, 10


@pytest.mark.broker
@pytest.mark.parametrize("seed", [1, 2])
def test_after_any_history_the_fold_says_what_the_broker_says(
    seed: int, broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str]
) -> None:
    history = History(client, broker.bootstrap_server, seed, unique("h") + "-")
    try:
        for number in range(1, OPERATIONS + 1):
            history.step()
            if number % REST_EVERY == 0:
                assert [str(one) for one in history.rest()] == [], f"after {number} operations of seed {seed}"
        assert [str(one) for one in history.rest_compacted()] == []
        assert history.gaps() == []
        assert history.uneven() == []
        states = {event.new for events in history.folded.events.values() for event in events if event.kind == "state"}
        assert {"Stable", "Dead"} <= states
        assert len(history.log) > OPERATIONS
    finally:
        history.close()


@pytest.mark.broker
def test_a_job_that_is_killed_in_its_work_tells_every_event_once_and_of_a_lost_jvm_in_one_line(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    history = History(client, broker.bootstrap_server, 3, unique("h") + "-", groups=3)
    job = Job(broker.bootstrap_server, tmp_path)

    def play(operations: int) -> None:
        for _ in range(operations):
            history.step()

    try:
        play(40)
        job.start()
        play(20)
        assert disagreements(job, client, history, exactly=True) == []
        play(60)
        assert job.crash() is None
        play(20)
        job.start(Start(("--max-offsets-per-trigger", "10")))  # cuts operations in two
        assert disagreements(job, client, history, exactly=True) == []
        assert job.lose_jvm() is None
        assert job.said.splitlines()[-1].startswith("Error: Spark's JVM is gone: was it killed, or ")
        assert "Traceback" not in job.said
    finally:
        job.close()
        history.close()

"""The job lives through what a cluster goes through in months."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from streaming_app.job import keeping
from streaming_app.job.run import JobConfig, run_with
from streaming_app.local.broker import LocalBroker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.member import Member
from streaming_app.protocol.topology import subtopology, topology
from streaming_app.serve.warehouse import Warehouse
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.broker
def test_a_broker_that_is_away_for_a_while_is_waited_for(
    start_broker: Callable[..., LocalBroker], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_TOPIC_SECONDS", 2.0)
    own = start_broker()
    lines: list[str] = []
    stop = Event()
    reads = topology(subtopology("0", source_topics=["missing"]))

    def join(group: str) -> None:
        with StreamsGroupClient(own.bootstrap_server) as client:
            Member(client, group, reads).join()

    def seen(group: str) -> bool:
        rows = Warehouse(tmp_path).rows("SELECT group_id FROM groups")
        return {"group_id": group} in rows

    join("before")
    config = JobConfig(bootstrap_server=own.bootstrap_server, warehouse=tmp_path)
    job = Thread(target=run_with, args=(spark, config, lines.append, stop, tmp_path / "spark.log"))
    job.start()
    try:
        assert wait_until(lambda: any(line.startswith("batch 0") for line in lines), 60), lines
        assert seen("before")
        own.kill()
        assert wait_until(lambda: any("Waiting for it." in line for line in lines), 180), lines
        own.start()
        join("after")
        assert wait_until(lambda: seen("after"), 180), lines
        assert wait_until(lambda: "A broker answers again." in lines, 60), lines
    finally:
        stop.set()
        job.join()
    assert lines[-1] == "Stopped."

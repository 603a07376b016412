"""`streams-groups verify` as a user runs it: a real broker, and the tables that a job wrote from its log."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.demo_groups import create_demo_groups
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from tests.support.job_runner import run_once, streams_groups


@pytest.fixture(scope="module")
def demo_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamsGroupClient]:
    """A client of a broker with the groups of the demo, which do not change."""
    with (
        LocalBroker(tmp_path_factory.mktemp("broker")) as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        create_demo_groups(client)
        yield client


@pytest.fixture(scope="module")
def tables(demo_client: StreamsGroupClient, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = tmp_path_factory.mktemp("warehouse")
    run_once(spark, server(demo_client), warehouse)
    return warehouse


@pytest.fixture
def verify(demo_client: StreamsGroupClient) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda warehouse, *options: streams_groups(
        "verify", "--bootstrap-server", server(demo_client), "--warehouse", str(warehouse), *options
    )


def server(client: StreamsGroupClient) -> str:
    return str(client.config["bootstrap_servers"])


@pytest.mark.broker
def test_groups_in_every_state_agree_then_lag_and_then_differ(
    demo_client: StreamsGroupClient,
    tables: Path,
    verify: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    agreeing = verify(tables)
    assert (agreeing.returncode, agreeing.stdout, agreeing.stderr) == (0, "10 groups agree, 0 differ\n", "")

    SimulatedMember(
        demo_client, "price-feed", topology(subtopology("0", source_topics=["prices-eu", "prices-us"]), epoch=2)
    ).join()
    SimulatedMember(demo_client, "newcomer", topology(subtopology("0", source_topics=["prices-eu"]))).join()
    lagging = verify(tables, "--timeout", "1")
    ends = demo_client.end_offsets("__consumer_offsets")
    offsets = read_checkpoint_offsets(tables, "default")
    assert offsets is not None
    behind = sum(offsets.offsets_behind(ends).values())
    assert behind > 0
    assert lagging.stdout.splitlines() == [
        f"not compared: the job is {behind} offsets behind: newcomer, price-feed",
        "9 groups agree, 0 differ, 2 not compared",
    ]
    assert lagging.returncode == 1

    inconsistent = tmp_path / "inconsistent"  # the checkpoint is ahead of the tables
    shutil.copytree(tables, inconsistent)
    checkpoint = inconsistent / "_checkpoints" / "default"
    source = json.dumps({offsets.topic: {str(partition): end for partition, end in ends.items()}})
    (checkpoint / "offsets" / "99").write_text("v1\n{}\n" + source, "utf-8")
    (checkpoint / "commits" / "99").write_text("v1\n{}", "utf-8")
    differing = verify(inconsistent, "--timeout", "5", "--json")
    found = json.loads(differing.stdout)
    assert {one["group_id"] for one in found["differences"]} == {"newcomer", "price-feed"}
    assert (differing.returncode, found["agreeing"], found["agrees"]) == (1, 9, False)

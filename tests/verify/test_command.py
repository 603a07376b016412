"""`streams-groups verify` as a user runs it: a real broker, the tables that a real job made of its log."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streaming_app.local.answering import reserve
from streaming_app.local.broker import LocalBroker
from streaming_app.local.living import create_living_groups
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.member import Member
from streaming_app.protocol.topology import subtopology, topology
from streaming_app.serve.position import position
from tests.job.running import run_once, streams_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamsGroupClient]:
    """A client of a broker with the groups of the demo, held still."""
    with (
        LocalBroker(tmp_path_factory.mktemp("broker")) as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        create_living_groups(client)
        yield client


@pytest.fixture(scope="module")
def tables(living: StreamsGroupClient, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = tmp_path_factory.mktemp("warehouse")
    run_once(spark, server(living), warehouse)
    return warehouse


@pytest.fixture
def verify(living: StreamsGroupClient) -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda warehouse, *options: streams_groups(
        "verify", "--bootstrap-server", server(living), "--warehouse", str(warehouse), *options
    )


def server(client: StreamsGroupClient) -> str:
    return str(client.admin.config["bootstrap_servers"])


@pytest.mark.broker
def test_groups_in_every_state_agree_then_lag_and_then_differ(
    living: StreamsGroupClient,
    tables: Path,
    verify: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    agreed = verify(tables)
    assert (agreed.returncode, agreed.stdout, agreed.stderr) == (0, "10 groups agree, 0 differ\n", "")

    Member(living, "price-feed", topology(subtopology("0", source_topics=["prices-eu", "prices-us"]), epoch=2)).join()
    Member(living, "newcomer", topology(subtopology("0", source_topics=["prices-eu"]))).join()
    lagging = verify(tables, "--timeout", "1")
    ends = living.end_offsets("__consumer_offsets")
    at = position(tables, "default")
    assert at is not None
    behind = sum(at.behind(ends).values())
    assert behind > 0
    assert lagging.stdout.splitlines() == [
        f"not compared: the job is {behind} offsets behind: newcomer, price-feed",
        "9 groups agree, 0 differ, 2 not compared",
    ]
    assert lagging.returncode == 1

    lying = tmp_path / "lying"  # a checkpoint that has passed what its tables do not hold
    shutil.copytree(tables, lying)
    checkpoint = lying / "_checkpoints" / "default"
    source = json.dumps({at.topic: {str(partition): end for partition, end in ends.items()}})
    (checkpoint / "offsets" / "99").write_text("v1\n{}\n" + source, "utf-8")
    (checkpoint / "commits" / "99").write_text("v1\n{}", "utf-8")
    differing = verify(lying, "--timeout", "5")
    lines = differing.stdout.splitlines()
    (told,) = living.describe(["price-feed"])
    assert differing.returncode == 1
    assert "newcomer group: tables say absent, broker says " in lines[0]
    assert f"price-feed group_epoch: tables say 3, broker says {told['group_epoch']}" in lines
    assert lines[-1] == "9 groups agree, 2 differ"
    as_json = json.loads(verify(lying, "--timeout", "5", "--json").stdout)
    assert {one["group_id"] for one in as_json["differences"]} == {"newcomer", "price-feed"}
    assert (as_json["agreeing"], as_json["agrees"]) == (9, False)


@pytest.mark.broker
def test_what_stands_in_the_way_is_one_line(
    tables: Path,
    verify: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    beyond = tmp_path / "beyond"
    shutil.copytree(tables, beyond)
    checkpoint = beyond / "_checkpoints" / "default"
    (checkpoint / "offsets" / "99").write_text('v1\n{}\n{"__consumer_offsets":{"0":99999}}', "utf-8")
    (checkpoint / "commits" / "99").touch()
    jks = tmp_path / "jks.properties"
    jks.write_text("security.protocol=SSL\nssl.truststore.location=trust.jks\n", "utf-8")
    with reserve() as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
    unanswered = streams_groups("verify", "--bootstrap-server", nobody, "--warehouse", str(tables), "--timeout", "1")
    for ran, words in (
        (verify(tmp_path / "nowhere"), "No streams-groups warehouse at"),
        (verify(tables, "--cluster", "another"), "The job has not finished a batch yet"),
        (verify(tables, "--command-config", str(jks)), "--command-config: ssl.truststore.location trust.jks: No such"),
        (verify(beyond), "that this cluster does not have (partition 0)"),
        (unanswered, f"No Kafka broker answers at {nobody}"),
    ):
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1), ran
        assert words in ran.stderr

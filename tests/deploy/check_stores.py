"""The job and the commands with a warehouse that is no local directory, as deploy/README.md says.

Run by `make check-deploy`, not by `make test`: it fetches Hadoop's jars, some 130 MB, and takes a minute or two.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaProducer

from offsets_decoder import encode
from streaming_app.local.answering import reserve
from streaming_app.local.container import Broker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.serve.place import Place
from streaming_app.serve.position import position
from tests.deploy import stores
from tests.job.running import refusal, run_job, streams_groups

pytestmark = pytest.mark.broker
TOOLS = Path(__file__).parents[2] / "build" / "deploy-tools" / "bin"


class Store(NamedTuple):
    """A place for a warehouse, and what Spark needs for it."""

    place: Place
    conf: Mapping[str, str]
    missing: str
    """A place below which nobody may write."""

    @property
    def options(self) -> list[str]:
        return [part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")]


@pytest.fixture(params=["hdfs", "s3a"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("STREAMS_GROUPS_STATE_DIR", str(tmp_path / "state"))
    if request.param == "hdfs":
        with stores.hdfs(tmp_path) as uri, reserve() as closed:
            yield Store(Place.of(uri) / "a" / "warehouse", {}, f"hdfs://localhost:{closed.getsockname()[1]}/a")
        return
    server = shutil.which("moto_server", path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
    if not server:
        pytest.skip("there is no moto_server here")
    with stores.s3(tmp_path, server) as endpoint:
        for name, value in {**stores.S3_ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}.items():
            monkeypatch.setenv(name, value)
        yield Store(Place.of(f"s3a://{stores.BUCKET}/a"), stores.s3a_settings(endpoint), "s3a://no-such-bucket/a")


def test_a_store_holds_all_that_a_directory_would(
    store: Store, broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server)

    def write(epoch: int) -> None:
        for key, value in (
            encode(17, {"group_id": "g"}, {"epoch": epoch}),
            encode(20, {"group_id": "g"}, {"assignment_epoch": epoch}),
        ):
            producer.send(topic, key=key, value=value, partition=0).get(30)

    def asked(*command: str) -> str:
        ran = streams_groups(*command, "--warehouse", store.place)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    said = []
    for epoch, more in ((2, ()), (3, ()), (4, ("--reset",))):
        write(epoch)
        ran = run_job(broker.bootstrap_server, store.place, "--topic", topic, *store.options, *more)
        assert ran.returncode == 0, ran.stderr
        said.append(next(line for line in ran.stdout.splitlines() if topic in line).partition("; ")[2])
        rows = json.loads(asked("sql", "SELECT group_id, group_epoch FROM groups", "--format", "json"))
        assert rows == [{"group_id": "g", "group_epoch": epoch}]
    producer.close()
    assert said[0] == "reading from the beginning"
    assert said[1] == "resuming from the checkpoint"
    assert said[2].startswith("reading from the beginning again")

    passed = position(store.place, "default")
    assert passed is not None
    assert passed.offsets == {0: 6}
    told = json.loads(asked("status", "--json"))
    assert (told["job"]["running"], told["job"]["stopped"]) == (False, True)
    assert all(table["files_with_history"] > 0 for table in told["tables"])
    assert asked("list", "--state").split() == ["GROUP", "STATE", "g", "Empty"]
    assert json.loads(asked("alerts", "--json", "--pending")) is not None
    assert not list(tmp_path.glob("*:*"))  # no URI was taken for a path


def test_a_store_that_is_not_there_is_told_in_one_line(store: Store) -> None:
    for ran in (
        streams_groups("list", "--warehouse", store.missing),
        streams_groups("status", "--warehouse", store.missing),
        run_job("127.0.0.1:1", store.missing),
    ):
        assert store.missing in refusal(ran)

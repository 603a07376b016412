"""The job and the commands with a warehouse that is not a local directory, as in deploy/README.md.

Run by `make check-deploy`, not by `make test`: it downloads about 130 MB of Hadoop's jars, and takes a minute or two.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from streaming_app.errors import JobError
from streaming_app.job.owner import owning, read_owner
from streaming_app.job.stopping import StopRequestedError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.process import reserve_port
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from streaming_app.tables.location import Location
from tests.deploy import stores
from tests.job.job_runner import error_line, run_job, streams_groups
from tests.offsets_topic import appending, epoch_records
from tests.waiting import wait_until

pytestmark = pytest.mark.broker
TOOLS = Path(__file__).parents[2] / "build" / "deploy-tools" / "bin"


class Store(NamedTuple):
    """The location of a warehouse, and the Spark settings for it."""

    location: Location
    conf: Mapping[str, str]
    unavailable: str
    """A location whose store does not exist or does not respond."""

    @property
    def options(self) -> list[str]:
        return [part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")]


@pytest.fixture(params=["hdfs", "s3a"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("STREAMS_GROUPS_STATE_DIR", str(tmp_path / "state"))
    if request.param == "hdfs":
        with stores.hdfs(tmp_path) as uri, reserve_port() as closed:
            yield Store(Location.of(uri) / "a" / "warehouse", {}, f"hdfs://localhost:{closed.getsockname()[1]}/a")
        return
    server = shutil.which("moto_server", path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
    if not server:
        pytest.skip("moto_server is not installed")
    with stores.s3(tmp_path, server) as endpoint:
        for name, value in {**stores.S3_ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}.items():
            monkeypatch.setenv(name, value)
        yield Store(Location.of(f"s3a://{stores.BUCKET}/a"), stores.s3a_settings(endpoint), "s3a://no-such-bucket/a")


def test_job_and_commands_work_with_an_object_store(
    store: Store, broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)

    def write(epoch: int) -> None:
        with appending(broker.bootstrap_server) as append:
            append(topic, *epoch_records("g", epoch))

    def run_command(*command: str) -> str:
        result = streams_groups(*command, "--warehouse", store.location)
        assert result.returncode == 0, result.stderr
        return result.stdout

    starts = []
    for epoch, options in ((2, ()), (3, ()), (4, ("--reset",))):
        write(epoch)
        result = run_job(broker.bootstrap_server, store.location, "--topic", topic, *store.options, *options)
        assert result.returncode == 0, result.stderr
        starts.append(next(line for line in result.stdout.splitlines() if topic in line).partition("; ")[2])
        rows = json.loads(run_command("sql", "SELECT group_id, group_epoch FROM groups", "--format", "json"))
        assert rows == [{"group_id": "g", "group_epoch": epoch}]
    assert starts[0] == "reading from the beginning"
    assert starts[1] == "resuming from the checkpoint"
    assert starts[2].startswith("reading from the beginning again")

    processed = read_checkpoint_offsets(store.location, "default")
    assert processed is not None
    assert processed.offsets == {0: 6}
    status = json.loads(run_command("status", "--json"))
    assert (status["job"]["running"], status["job"]["stopped"]) == (False, True)
    assert all(table["files_with_history"] > 0 for table in status["tables"])
    assert run_command("list", "--state").split()[3:5] == ["g", "Empty"]
    assert json.loads(run_command("alerts", "--json", "--pending")) is not None
    assert not list(tmp_path.glob("*:*"))  # no URI was used as a path


def test_of_jobs_that_start_at_the_same_moment_one_owns_the_rows(store: Store) -> None:
    """They have the name of their host in common, and no lock. Without Spark, which a job starts only after this."""

    def race(jobs: int) -> list[int]:
        begin, refused = threading.Barrier(jobs), list[int]()

        def start(number: int) -> int | None:
            stop = threading.Event()
            begin.wait()
            try:
                with owning(store.location, "default", f"lock-{number}", lambda _: stop.set(), stop) as owner:
                    assert wait_until(lambda: len(refused) == jobs - 1, 60)
                    return owner.record.term
            except (JobError, StopRequestedError):  # overtaken, or waiting for the owner's heartbeats
                refused.append(number)
                return None

        with ThreadPoolExecutor(jobs) as threads:
            return [term for term in threads.map(start, range(jobs)) if term is not None]

    for term in (1, 2, 3):
        assert race(4) == [term]
        last = read_owner(store.location, "default")
        assert last is not None
        assert (last.term, last.ended) == (term, True)


def test_an_unavailable_store_is_one_line(store: Store) -> None:
    for result in (
        streams_groups("list", "--warehouse", store.unavailable),
        streams_groups("status", "--warehouse", store.unavailable),
        run_job("127.0.0.1:1", store.unavailable),
    ):
        assert store.unavailable in error_line(result)

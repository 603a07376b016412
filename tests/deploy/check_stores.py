"""The job and the commands with a warehouse that is not a local directory, as in deploy/README.md.

Run by `make check-deploy`, not by `make test`: it downloads about 130 MB of Hadoop's jars, and takes a minute or two.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from streaming_app.errors import OtherOwnerError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.child_process import reserve_port
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.rust_table import RustTable
from tests.support import stores
from tests.support.container import Broker
from tests.support.fencing import race
from tests.support.job_runner import error_line, run_job, streams_groups
from tests.support.offsets_topic import appending, epoch_records
from tests.support.tools import deploy_tool
from tests.support.warehouses import arrow_schema

pytestmark = pytest.mark.broker


class Store(NamedTuple):
    """The location of a warehouse, and the Spark settings for it."""

    location: Location
    conf: Mapping[str, str]
    unavailable: str
    """A location whose store does not exist or does not respond."""

    @property
    def options(self) -> list[str]:
        return [part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")]


@contextmanager
def hdfs(tmp_path: Path, _: pytest.MonkeyPatch) -> Iterator[Store]:
    with stores.hdfs(tmp_path) as uri, reserve_port() as closed:
        yield Store(Location.of(uri) / "a" / "warehouse", {}, f"hdfs://localhost:{closed.getsockname()[1]}/a")


@contextmanager
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with stores.s3(tmp_path, deploy_tool("moto_server")) as endpoint:
        for name, value in {**stores.S3_ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}.items():
            monkeypatch.setenv(name, value)
        yield Store(Location.of(f"s3a://{stores.BUCKET}/a"), stores.s3a_settings(endpoint), "s3a://no-such-bucket/a")


@contextmanager
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """For delta-rs alone: Hadoop's client for Azure was never tried."""
    with stores.azure(tmp_path, deploy_tool("azurite-blob")) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Store(Location.of(stores.AZURE_WAREHOUSE), {}, "")


@pytest.fixture(params=[hdfs, s3])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("STREAMS_GROUPS_STATE_DIR", str(tmp_path / "state"))
    with request.param(tmp_path, monkeypatch) as opened:
        yield opened


@pytest.fixture(params=[hdfs, s3, azure])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    """A location for what delta-rs writes."""
    with request.param(tmp_path, monkeypatch) as opened:
        yield opened.location


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


def test_of_jobs_that_start_at_the_same_moment_one_owns_the_rows(place: Location, tmp_path: Path) -> None:
    """They have the name of their host in common, and no lock. Without Spark, which a job starts only after this."""
    assert [race(place, tmp_path, jobs=4) for _ in range(3)] == [[1], [2], [3]]


def test_what_an_overtaken_job_writes_is_refused_wherever_it_was_paused(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = "group_events"
    rows = pa.Table.from_pylist([{"cluster": "default", "group_id": "g"}], arrow_schema(definition))
    others = rows.set_column(rows.schema.get_field_index("group_id"), "group_id", [["new"]])
    open_table = Location.delta_table

    def write(opening: int) -> tuple[int, list[str]]:
        """Return how often the old job opened the table, the new one having started then, and whose rows it has."""
        location = place / f"{definition}-{opening}"
        DeltaTable.create(
            str(location), rows.schema, partition_by=["cluster"], storage_options=location.storage_options
        )
        old, new = Fence("default", 1), Fence("default", 2)
        old.claim([location])
        openings = 0

        def overtake(self: Location) -> DeltaTable:
            nonlocal openings
            table = open_table(self)
            openings += 1
            if openings == opening:
                with monkeypatch.context() as undone:
                    undone.setattr(Location, "delta_table", open_table)
                    new.claim([location])
                    commit = CommitProperties(app_transactions=[new.transaction()])
                    write_deltalake(open_table(location), others, mode="append", commit_properties=commit)
            return table

        with monkeypatch.context() as paused:
            paused.setattr(Location, "delta_table", overtake)
            with suppress(OtherOwnerError):
                RustTable(location, "default", old).append(rows)
        return openings, sorted(location.delta_table().to_pyarrow_table()["group_id"].to_pylist())

    opening = 1
    while (found := write(opening))[0] >= opening:
        assert found[1] == ["new"], opening
        opening += 1
    assert found[1] == ["g"]  # it was done before it was paused
    assert opening > 1


def test_an_unavailable_store_is_one_line(store: Store) -> None:
    for result in (
        streams_groups("list", "--warehouse", store.unavailable),
        streams_groups("status", "--warehouse", store.unavailable),
        run_job("127.0.0.1:1", store.unavailable),
    ):
        assert store.unavailable in error_line(result)

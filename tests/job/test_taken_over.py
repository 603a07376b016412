"""Jobs that exclude each other, by a lock that they share, and with a lock each, as with a warehouse in a store.

With a lock each, the second one takes over from the first one, which is paused, and then ends. How long it waits before
that, `test_owner` tells.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.tables.reader import WarehouseReader
from tests.support.fencing import assert_fenced, terms
from tests.support.offsets_topic import appending, epoch_records
from tests.support.processes import process_tree, send_signal
from tests.support.running_job import RunningJob, running_job
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


def test_a_paused_job_ends_once_another_one_has_taken_over(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, warehouse = unique("offsets"), tmp_path / "warehouse"
    client.create_topic(topic, 1)
    values = {"topic": topic, "self_check": {"enabled": False}, "lag": {"enabled": False}, "alerts": {"interval": "1s"}}

    def options(name: str) -> tuple[str, Path]:
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**values, "state_dir": str(tmp_path / name)}), "utf-8")
        return "--config", file

    def epochs() -> list[int]:
        rows = WarehouseReader(warehouse).rows("SELECT group_epoch FROM groups")
        return [row["group_epoch"] for row in rows]

    with (
        appending(broker.bootstrap_server) as append,
        running_job(broker.bootstrap_server, warehouse, *options("a")) as a,
    ):
        append(topic, *epoch_records("g", 2))
        assert a.says("Caught up"), a.lines
        assert wait_until(lambda: epochs() == [2]), a.lines
        with_its_lock = ["--warehouse", str(warehouse), *map(str, options("a"))]
        refused = CliRunner().invoke(main, ["run", "--bootstrap-server", broker.bootstrap_server, *with_its_lock])
        assert f"Another job already writes cluster 'default' into this warehouse: process {a.process.pid} on" in (
            refused.stderr
        )

        with paused(a), running_job(broker.bootstrap_server, warehouse, *options("b")) as b:
            append(topic, *epoch_records("g", 3))
            assert wait_until(lambda: epochs() == [3]), b.lines
            resume(a)
            code, stderr = a.end()
            assert code == 1
            taken_over = f"Another job has taken over cluster 'default': process {b.process.pid} on"
            assert stderr.startswith(f"Error: {taken_over}")
            append(topic, *epoch_records("g", 4))
            assert wait_until(lambda: epochs() == [4]), b.lines
            assert b.end(signal.SIGTERM) == (0, "")
            assert "Stopping ...\n" in b.lines
    assert_fenced(warehouse)
    assert {terms(warehouse, name)[-1] for name in ("groups", "alerts", "offset_commits")} == {2}
    query = "SELECT kind, new FROM group_events WHERE kind = 'group_epoch' ORDER BY at, new"
    assert [row["new"] for row in WarehouseReader(warehouse).rows(query)] == ["2", "3", "4"]


@contextmanager
def paused(job: RunningJob) -> Iterator[None]:
    """Stop every process of the job, until it is resumed or the block ends."""
    send_signal(signal.SIGSTOP, list(process_tree(job.process.pid)))
    try:
        yield
    finally:
        resume(job)


def resume(job: RunningJob) -> None:
    send_signal(signal.SIGCONT, list(process_tree(job.process.pid)))

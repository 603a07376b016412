"""Replicas of a job: one works, the others wait, and take over from one that is paused or killed.

With a lock each, as on several hosts, this takes a minute; with one lock seconds, see `test_owner`.
"""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.tables.reader import WarehouseReader
from tests.support.container import Broker
from tests.support.fencing import assert_fenced, terms
from tests.support.offsets_topic import appending, epoch_records
from tests.support.processes import process_tree, send_signal
from tests.support.running_job import RunningJob, running_job
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


def test_one_works_and_the_others_wait_until_it_is_gone(
    broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, warehouse = unique("offsets"), tmp_path / "warehouse"
    client.create_topic(topic, 1)
    values = {
        "topic": topic,
        "lag": {"enabled": False},
        "alerts": {"interval": "1s"},
        "metrics": {"listen": "127.0.0.1:0"},
    }

    def options(name: str) -> list[str]:
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**values, "state_dir": str(tmp_path / name)}), "utf-8")
        return ["--config", str(file)]

    def epochs() -> list[int]:
        rows = WarehouseReader(warehouse).rows("SELECT group_epoch FROM groups")
        return [row["group_epoch"] for row in rows]

    def waits_for(job: RunningJob, other: RunningJob) -> bool:
        return job.says(f"Waiting: cluster default is written by {socket.gethostname()} (pid {other.process.pid}), ")

    def start(name: str) -> AbstractContextManager[RunningJob]:
        return running_job(broker.bootstrap_server, warehouse, *options(name))

    with appending(broker.bootstrap_server) as append, start("a") as a:
        append(topic, *epoch_records("g", 2))
        assert a.says("Caught up"), a.lines
        assert wait_until(lambda: epochs() == [2]), a.lines
        once = ["--bootstrap-server", broker.bootstrap_server, "--warehouse", str(warehouse), "--once", *options("a")]
        refused = CliRunner().invoke(main, ["run", *once])
        assert "Another job already writes cluster 'default' into this warehouse: " in refused.stderr
        assert f" (pid {a.process.pid})\n" in refused.stderr

        with start("b") as b:
            assert waits_for(b, a), b.lines
            assert b.get("/health")[0] == 200
            status, body = b.get("/ready")
            assert status == 503
            assert f"is written by {socket.gethostname()} (pid {a.process.pid})" in body
            with paused(a):
                append(topic, *epoch_records("g", 3))
                assert wait_until(lambda: epochs() == [3]), b.lines
            code, stderr = a.end()
            assert code == 1
            successor = f"{socket.gethostname()} (pid {b.process.pid})"
            assert stderr.startswith(f"Error: Another job has taken over cluster 'default': {successor}; ")
            with start("b") as c:
                assert waits_for(c, b), c.lines
                send_signal(signal.SIGKILL, list(process_tree(b.process.pid)))
                append(topic, *epoch_records("g", 4))
                assert wait_until(lambda: epochs() == [4]), c.lines
                assert all(f"(pid {b.process.pid})" in line for line in c.lines if "Waiting: " in line)
                assert c.end(signal.SIGTERM) == (0, "")
                assert "Stopping ...\n" in c.lines
    assert_fenced(warehouse)
    assert {terms(warehouse, name)[-1] for name in ("groups", "alerts", "offset_commits")} == {3}
    query = "SELECT kind, new FROM group_events WHERE kind = 'group_epoch' ORDER BY at, new"
    assert [row["new"] for row in WarehouseReader(warehouse).rows(query)] == ["2", "3", "4"]


@contextmanager
def paused(job: RunningJob) -> Iterator[None]:
    """Stop every process of the job until the block ends."""
    send_signal(signal.SIGSTOP, list(process_tree(job.process.pid)))
    try:
        yield
    finally:
        send_signal(signal.SIGCONT, list(process_tree(job.process.pid)))

"""Tables that were restored while the job was stopped: what they lack is read again, and nothing is written twice."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.tables.reader import WarehouseReader
from tests.support.documents import DOCS, code_blocks
from tests.support.offsets_topic import UNDECODABLE, appending, epoch_records

pytestmark = pytest.mark.broker
TABLES = ("groups", "group_events", "quarantine")


@pytest.fixture
def write(broker: Broker) -> Iterator[Callable[..., int]]:
    """Appends records of group g at an epoch, and one that cannot be decoded."""
    with appending(broker.bootstrap_server) as append:
        yield lambda topic, epoch: append(topic, *epoch_records("g", epoch), UNDECODABLE)


@pytest.fixture
def topic(client: StreamsGroupClient, unique: Callable[[str], str]) -> str:
    name = unique("offsets")
    client.create_topic(name, 1)
    return name


def content(path: Path) -> dict[str, list[dict[str, Any]]]:
    reader = WarehouseReader(path)
    return {
        name: sorted(reader.rows(f"SELECT * FROM {name}"), key=lambda row: str(sorted(row.items()))) for name in TABLES
    }


def test_what_a_restored_table_lacks_is_read_again_and_nothing_is_written_twice(
    topic: str, write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    write(topic, 2)
    run(topic, warehouse=warehouse)
    versions = {name: DeltaTable(warehouse / name).version() for name in ("groups", "quarantine")}
    for epoch in (3, 4):
        write(topic, epoch)
        run(topic, warehouse=warehouse)
    before = content(warehouse)

    for name, version in versions.items():
        DeltaTable(warehouse / name).restore(version)
    line = run(topic, warehouse=warehouse)
    assert "lost or restored since: groups, quarantine; reading from the beginning; the history stays" in line
    assert content(warehouse) == before
    assert "resuming" in run(topic, warehouse=warehouse)


def back_up_as_documented(warehouse: Path, copied: Path) -> Iterator[str]:
    """Run the shell commands of the operators' page one by one, with other directories; yield each after it."""
    (commands,) = (block.text for block in code_blocks(DOCS / "operating.md", "") if "_checkpoints" in block.text)
    place, *lines = commands.replace("/backup", str(copied)).splitlines()
    assert place == "cd /var/lib/streams-groups"
    for line in lines:
        subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=warehouse, check=True)
        yield line


def test_the_documented_backup_of_a_job_that_writes_meanwhile_can_be_restored_as_documented(
    topic: str, write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    warehouse, copied = tmp_path / "warehouse", tmp_path / "copy"
    write(topic, 2)
    run(topic, warehouse=warehouse)
    for epoch, _ in enumerate(back_up_as_documented(warehouse, copied), start=3):
        write(topic, epoch)
        run(topic, warehouse=warehouse)
    before = content(warehouse)
    shutil.rmtree(warehouse)
    copied.rename(warehouse)
    assert "the checkpoint is older than group_events, quarantine" in run(topic, warehouse=warehouse)
    assert content(warehouse) == before
    assert "resuming" in run(topic, warehouse=warehouse)
    events = content(warehouse)["group_events"]
    assert sorted(int(one["new"]) for one in events if one["kind"] == "group_epoch") == list(range(2, epoch + 1))
    assert len(content(warehouse)["quarantine"]) == epoch - 1

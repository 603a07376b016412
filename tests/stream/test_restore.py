"""Tables that were restored while the job was stopped: what they lack is read again, and nothing is written twice."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.tables.location import Location
from streaming_app.tables.log_damage import mend_logs
from streaming_app.tables.reader import WarehouseReader
from tests.docs.documents import DOCS, code_blocks
from tests.offsets_topic import UNDECODABLE, appending, epoch_records

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


def copy(warehouse: Path, to: Path, *names: str) -> None:
    """Replace these directories of `to` by those of `warehouse`."""
    for name in names:
        shutil.rmtree(to / name, ignore_errors=True)
        shutil.copytree(warehouse / name, to / name)


@pytest.mark.parametrize(
    ("restored", "by"),
    [
        (("groups",), "copy"),
        (("group_events",), "RESTORE"),
        (("quarantine",), "deletion"),
        (("groups", "quarantine"), "RESTORE"),
        (TABLES, "copy"),
    ],
)
def test_what_a_restored_table_lacks_is_read_again_and_nothing_is_written_twice(
    topic: str, write: Any, run: Callable[..., str], tmp_path: Path, restored: tuple[str, ...], by: str
) -> None:
    warehouse, copied = tmp_path / "warehouse", tmp_path / "copy"
    write(topic, 2)
    run(topic, warehouse=warehouse)
    versions = {name: DeltaTable(warehouse / name).version() for name in restored}
    copy(warehouse, copied, *TABLES)
    for epoch in (3, 4):
        write(topic, epoch)
        run(topic, warehouse=warehouse)
    before = content(warehouse)

    for name in restored:
        if by == "copy":
            copy(copied, warehouse, name)
        elif by == "RESTORE":
            DeltaTable(warehouse / name).restore(versions[name])
        else:
            shutil.rmtree(warehouse / name)
    line = run(topic, warehouse=warehouse)
    assert "reading from the beginning" in line
    assert "the history stays" in line
    assert content(warehouse) == before
    assert "resuming" in run(topic, warehouse=warehouse)


def test_a_copy_of_the_whole_warehouse_is_resumed_from(
    topic: str, write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    warehouse, copied = tmp_path / "warehouse", tmp_path / "copy"
    write(topic, 2)
    run(topic, warehouse=warehouse)
    shutil.copytree(warehouse, copied)
    write(topic, 3)
    run(topic, warehouse=warehouse)
    assert "resuming" in run(topic, warehouse=copied)
    assert content(copied) == content(warehouse)


def back_up_as_documented(warehouse: Path, copied: Path) -> Iterator[str]:
    """Run the shell commands of the operators' page one by one, with other directories; yield each after it."""
    (commands,) = (block.text for block in code_blocks(DOCS / "operating.md", "") if "_checkpoints" in block.text)
    place, *lines = commands.replace("/backup", str(copied)).splitlines()
    assert place == "cd /var/lib/streams-groups"
    for line in lines:
        subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=warehouse, check=True)
        yield line


@pytest.mark.parametrize("restored", [(), ("group_events", "quarantine")])
def test_the_documented_backup_of_a_job_that_writes_meanwhile_can_be_restored_as_documented(
    topic: str, write: Any, run: Callable[..., str], tmp_path: Path, restored: tuple[str, ...]
) -> None:
    warehouse, copied = tmp_path / "warehouse", tmp_path / "copy"
    write(topic, 2)
    run(topic, warehouse=warehouse)
    for epoch, _ in enumerate(back_up_as_documented(warehouse, copied), start=3):
        write(topic, epoch)
        run(topic, warehouse=warehouse)
    if restored:  # these tables only, into the warehouse
        copy(copied, warehouse, *restored)
        line = run(topic, warehouse=warehouse)
        assert f"lost or restored since: {', '.join(restored)}; reading from the beginning" in line
        assert content(warehouse)["groups"][0]["group_epoch"] == epoch
    else:  # all of the copy, in the place of the warehouse
        before = content(warehouse)
        shutil.rmtree(warehouse)
        copied.rename(warehouse)
        assert "the checkpoint is older than group_events, quarantine" in run(topic, warehouse=warehouse)
        assert content(warehouse) == before
        assert "resuming" in run(topic, warehouse=warehouse)
    events = content(warehouse)["group_events"]
    assert sorted(int(one["new"]) for one in events if one["kind"] == "group_epoch") == list(range(2, epoch + 1))
    assert len(content(warehouse)["quarantine"]) == epoch - 1


def test_a_copy_made_between_batches_with_the_checkpoint_last_is_read_again(
    topic: str, write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    warehouse, copied = tmp_path / "warehouse", tmp_path / "copy"
    write(topic, 2)
    run(topic, warehouse=warehouse)
    shutil.copytree(warehouse, copied, ignore=shutil.ignore_patterns("_checkpoints"))
    write(topic, 3)
    run(topic, warehouse=warehouse)
    shutil.copytree(warehouse / "_checkpoints", copied / "_checkpoints")
    assert "lost or restored since: groups, group_events" in run(topic, warehouse=copied)
    assert content(copied) == content(warehouse)


@pytest.mark.parametrize("kind", ["offsets", "commits"])
def test_after_a_power_cut_the_job_reads_again_and_nothing_is_doubled(
    kind: str, run: Callable[..., str], topic: str, write: Callable[..., int], tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    for epoch in (2, 3):
        write(topic, epoch)
        run(topic, warehouse=warehouse)
    before = content(warehouse)
    newest = max((warehouse / "_checkpoints" / "default" / kind).glob("[0-9]*"), key=lambda file: int(file.name))
    newest.write_bytes(b"")
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    lines = list[str]()
    for name in ("groups", "group_events"):
        commit = max((warehouse / name / "_delta_log").glob("*.json"))
        commit.write_bytes(commit.read_bytes()[:50])
        os.utime(commit, (0, 0))
        mend_logs([Location.of(warehouse / name)], lines.append)
    first = run(topic, warehouse=warehouse)
    assert [line.partition(":")[0] for line in lines] == ["groups", "group_events"]
    assert f"the checkpoint is damaged, {kind}/{newest.name} cannot be read; reading from the beginning" in first
    assert content(warehouse) == before

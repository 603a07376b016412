"""Faults of what the job has stored, and readings of the topic from its beginning, which may be killed in turn."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable
from kafka.errors import KafkaError

from streaming_app.kafka.protocol import GroupError
from streaming_app.tables.definitions import tables
from tests.long.campaign.bed import CHECKPOINTS
from tests.long.faults.bed import FaultBed
from tests.long.faults.job_faults import kill_running

_TABLES = tuple(definition.name for definition in tables())
_CHECKPOINTS = tuple(f"_checkpoints/{name}" for name in CHECKPOINTS)
_CLEAN_SECONDS = 8.0  # of the cleaner, beyond the retention of tombstones


def full_disk(bed: FaultBed) -> None:
    """Let the disk be full for a while, once or several times; the job may end."""
    for _ in range(bed.times()):
        bed.wait_before()
        bed.disk.fill()
        try:
            bed.expect(bed.disk.is_full)
            bed.operate(bed.seconds(2, 10))
        finally:
            bed.disk.free()


def lose_checkpoint(bed: FaultBed) -> None:
    """Remove the checkpoint while the job does not run, with or without the record next to it."""
    lost = bed.random.choice(_CHECKPOINTS)
    _lose(bed, lost, *([f"{lost}.topic.json"] if bed.random.random() < 0.5 else []))


def lose_tables(bed: FaultBed) -> None:
    """Remove a table, or all tables with or without the checkpoint."""
    all_tables = (*_TABLES, *(["_checkpoints"] if bed.random.random() < 0.5 else []))
    _lose(bed, *(all_tables if bed.random.random() < 0.4 else [bed.random.choice(_TABLES)]))


def _lose(bed: FaultBed, *names: str) -> None:
    bed.wait_before()
    bed.kill_job()
    bed.expect(bed.remove(*names))
    bed.start_job()


def lose_while_running(bed: FaultBed) -> None:
    """Remove one table, or the checkpoint, while the job runs, once or twice."""
    for _ in range(bed.times(2)):
        bed.wait_before()
        bed.expect(bed.remove(bed.random.choice((*_TABLES, *_CHECKPOINTS))))
        bed.operate(bed.seconds(2, 8))


def restore_table(bed: FaultBed) -> None:
    """Restore one table to an earlier version, by Delta's RESTORE, or all tables but not the checkpoint."""
    bed.wait_before()
    bed.kill_job()
    names = _TABLES if bed.random.random() < 0.3 else (bed.random.choice(_TABLES),)
    restored = 0
    for name in names:
        with suppress(Exception):  # a table that a fault before this one has left unreadable or absent
            opened = DeltaTable(bed.warehouse / name)
            before = opened.version()
            opened.restore(bed.pick(range(before + 1)))
            restored += opened.version() > before
    bed.expect(restored > 0)
    bed.start_job()


def restore_copy(bed: FaultBed) -> None:
    """Copy the warehouse while the job runs, as documented, and later replace all of it, or one table, by the copy."""
    bed.wait_before()
    copied = bed.directory / "copy"
    shutil.rmtree(copied, ignore_errors=True)
    _copy_warehouse(bed.warehouse, copied)
    bed.operate(bed.seconds(2, 10))
    bed.kill_job()
    names = [one.name for one in copied.iterdir()]
    if bed.random.random() < 0.5:
        names = [bed.pick(sorted(name for name in names if name in _TABLES) or names)]
    bed.expect(bed.remove(*names))
    for name in names:
        shutil.copytree(copied / name, bed.warehouse / name)
    bed.start_job()


def _copy_warehouse(warehouse: Path, to: Path) -> None:
    """Copy in the order that `docs/operating.md` gives. Files and directories may be removed meanwhile."""

    def copy_file(source: str, target: str) -> None:
        with suppress(FileNotFoundError):
            shutil.copy2(source, target)

    logs = sorted(warehouse.glob("*/_delta_log"), key=lambda log: log.parent.name != "groups")
    for source in (warehouse / "_checkpoints", *logs, *(log.parent for log in logs)):
        ignored = shutil.ignore_patterns("_delta_log" if source in {log.parent for log in logs} else "")
        target = to / source.relative_to(warehouse)
        with suppress(shutil.Error, FileNotFoundError):
            shutil.copytree(source, target, copy_function=copy_file, ignore=ignored, dirs_exist_ok=True)


def kill_during_rereading(bed: FaultBed) -> None:
    """Kill the job several times while it reads from the beginning: by `--reset`, or since something was lost."""

    def checkpoint() -> bytes:
        file = bed.warehouse / _CHECKPOINTS[0] / "metadata"  # of Spark: the id of the query
        return file.read_bytes() if file.exists() else b""

    bed.wait_before()
    bed.kill_job()
    options = ["--reset"] if bed.random.random() < 0.6 else []
    if not options:
        bed.remove(bed.random.choice((*_CHECKPOINTS, "groups", "group_events", "offset_commits")))
    for _ in range(bed.times(5)):
        bed.start_job(*options)
        bed.operate_during_start()
        kill_running(bed)
    before = checkpoint()
    bed.start_job(*options)
    if options:
        bed.expect(lambda: checkpoint() not in {b"", before})


def miss_tombstones(bed: FaultBed) -> None:
    """Keep the job away while groups and members go, and until their tombstones are compacted away."""
    bed.kill_job()
    for group_id in bed.random.sample(bed.operations.groups, 4):
        for member in [one for one in bed.operations.members if one.group_id == group_id]:
            bed.operations.members.remove(member)
            with suppress(GroupError, KafkaError):
                member.leave()
        if bed.random.random() < 0.7:
            with suppress(GroupError, KafkaError):
                bed.client.delete_group(group_id)
    before = bed.cleaned_offsets()
    bed.operate(bed.retention_seconds + bed.seconds(0, _CLEAN_SECONDS))
    bed.expect(lambda: any(end > before.get(number, 0) for number, end in bed.cleaned_offsets().items()))
    bed.start_job()

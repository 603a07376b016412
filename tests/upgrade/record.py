"""Writes `RELEASE.tar.xz` next to this: warehouse and checkpoint of a release after part of a recorded log.

    git worktree add --detach TREE COMMIT
    python -m tests.upgrade.record TREE RELEASE

0.3.0 is the commit 203b5aa. Only code of that release writes the warehouse; the broker and the log are those of this
tree. Workers of Spark write one part of the log, as they do in large batches.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from tests.recorded import record as recorded
from tests.support.internal_topic import TimedRecord, write_records
from tests.support.offsets_log import RawRecord

TOPIC = "recorded"
PARTS = 3  # of the log: the release read all but the last one, in a run for each
_HERE = Path(__file__).parent
_LOG = Path(recorded.__file__).with_name("4.4.0.jsonl.gz")
_OF_THE_MACHINE = {".lock", ".log", ".properties", ".run"}
_KEEP_RECORDS = {"retention.ms": "-1"}  # they are old


def read_parts() -> list[list[RawRecord]]:
    """Return the recorded log, cut by time."""
    records = sorted(recorded.read(_LOG)[0], key=lambda raw: (raw.timestamp_ms, raw.partition, raw.offset))
    size = -(-len(records) // PARTS)
    return [records[start : start + size] for start in range(0, len(records), size)]


def create_topic(client: StreamsGroupClient, name: str, **configs: str) -> None:
    partitions = 1 + max(raw.partition for part in read_parts() for raw in part)
    client.create_topic(name, partitions, {**_KEEP_RECORDS, **configs})


def produce(server: str, topic: str, records: Iterable[RawRecord]) -> None:
    """Append records to a topic, in their order, with their times."""
    write_records(server, (TimedRecord(raw.timestamp_ms, topic, raw.partition, raw.key, raw.value) for raw in records))


def archive_of(release: str) -> Path:
    return _HERE / f"{release}.tar.xz"


def extract(release: str, directory: Path) -> Path:
    """Extract the warehouse of a release into a directory, and return that."""
    with tarfile.open(archive_of(release)) as archive:
        archive.extractall(directory, filter="data")
    return directory


def main(tree: Path, release: str) -> None:
    """Write the archive with the release in `tree`."""
    file = archive_of(release)
    with tempfile.TemporaryDirectory() as directory, LocalBroker(Path(directory) / "broker", progress=print) as broker:
        warehouse = Path(directory) / "warehouse"
        with StreamsGroupClient(broker.bootstrap_server) as client:
            create_topic(client, TOPIC)
        for part, change in zip(read_parts(), ("", _WORKERS_WRITE), strict=False):
            produce(broker.bootstrap_server, TOPIC, part)
            _run(tree, change, broker.bootstrap_server, warehouse)
        pack(warehouse, file)
    print(f"{file.name}: {file.stat().st_size:,} bytes")


def pack(warehouse: Path, file: Path) -> None:
    """Write the archive of a warehouse, without what is only of the machine that wrote it."""
    heartbeat = warehouse / "_jobs" / "default.running.json"
    record = {**json.loads(heartbeat.read_text("utf-8")), "host": "recorded"}
    heartbeat.write_text(json.dumps(record), "utf-8")
    with tarfile.open(file, "w:xz", preset=9) as archive:
        for path in sorted(warehouse.rglob("*")):
            if path.is_file() and path.suffix not in _OF_THE_MACHINE and path.name != "default.json":
                archive.add(path, path.relative_to(warehouse), filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


_RUN = "from streaming_app.cli.main import main; main(prog_name='streams-groups')"
_WORKERS_WRITE = """
from streaming_app.tables.driver_limits import MOST
MOST.update({kind: most._replace(records=0) for kind, most in MOST.items()})
"""


def _run(tree: Path, change: str, server: str, warehouse: Path) -> None:
    options = ("--once", "--topic", TOPIC, "--bootstrap-server", server, "--warehouse", str(warehouse))
    command = [sys.executable, "-c", change + _RUN, "run", *options]
    subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

"""The first catch-up of a log of many groups, from the start of the process: time, and the most memory that it takes.

Memory is what the kernel counts as resident (RSS) of each process, looked at every tenth of a second. Pages that
Python's workers share are counted for each, so the sum is an upper bound.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.bench.scene import PARTITIONS, Scene
from tests.job.running import STREAMS_GROUPS

_LOOK_SECONDS = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")


def run(scene: Scene, groups: int, members: int) -> None:
    """Print seconds and megabytes."""
    topic = f"catchup-{groups}"
    scene.client.create_topic(topic, PARTITIONS)
    records = scene.write_groups(topic, groups, members)
    where = ["--bootstrap-server", scene.broker.bootstrap_server, "--warehouse", str(scene.directory / topic)]
    peak: Counter[str] = Counter()
    started = time.monotonic()
    with subprocess.Popen([*STREAMS_GROUPS, "run", "--once", "--topic", topic, *where], stdout=subprocess.PIPE) as job:
        while job.poll() is None:
            now = Counter({"sum": 0})
            for pid in _tree(job.pid):
                name = "the job's own Python" if pid == job.pid else _name(pid)
                now[name] += _resident(pid)
            now["sum"] = sum(now.values())
            peak |= now
            time.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - started
        said = job.stdout.read().decode() if job.stdout else ""
    sys.stdout.writelines(line for line in said.splitlines(keepends=True) if line.startswith("batch"))
    assert job.returncode == 0, said
    megabytes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in peak.most_common())
    print(f"first catch-up of {groups:,} groups of {members} members ({records:,} records), start of Spark included:")
    print(f"{seconds:.1f} s, most memory: {megabytes}", flush=True)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(children).split():
            yield from _tree(int(child))


def _name(pid: int) -> str:
    return {"java": "Spark's JVM"}.get(_read(Path(f"/proc/{pid}/comm")).strip(), "Spark's Python workers")


def _resident(pid: int) -> int:
    return int((_read(Path(f"/proc/{pid}/statm")).split() or ["0", "0"])[1]) * _PAGE


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return ""

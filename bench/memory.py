"""The memory, processor time and files of a job, as the kernel counts them for each of its processes.

Resident size (RSS) would count pages that Python's workers share once for each worker. The proportional size (PSS)
divides them among the processes; reading it takes milliseconds.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.support.processes import process_name, process_tree, read_process_file

_TICKS = os.sysconf("SC_CLK_TCK")


def proportional_by_process(pid: int) -> Counter[str]:
    """Return the proportional size in bytes by kind of process, for the job with this process id and its children."""
    sizes: Counter[str] = Counter()
    for one in _tree(pid):
        sizes[_kind(one, pid)] += _proportional(one)
    return sizes


def format_megabytes(sizes: Counter[str]) -> str:
    """Return the sizes as text, largest first."""
    return ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in sizes.most_common())


def processor_seconds(pid: int) -> float:
    """Return the processor time of the job with this process id and of all its children that still run."""
    return sum(processor_seconds_by_process(pid).values())


def processor_seconds_by_process(pid: int) -> dict[str, float]:
    """Return the same by kind of process."""
    seconds: dict[str, float] = defaultdict(float)
    for one in _tree(pid):
        fields = read_process_file(one, "stat").rpartition(")")[2].split()
        seconds[_kind(one, pid)] += sum(map(int, fields[11:13])) / _TICKS
    return dict(seconds)


def file_sizes(warehouse: Path) -> list[int]:
    """Return the bytes of each file below a directory; a job may write and remove files meanwhile."""
    sizes = []
    for file in warehouse.rglob("*"):
        with suppress(FileNotFoundError):  # removed meanwhile
            if file.is_file():
                sizes.append(file.stat().st_size)
    return sizes


def _tree(pid: int) -> Iterator[int]:
    """Yield this process and all below it, except processes between fork and exec, which share the JVM's memory."""
    return process_tree(pid, leaving_out=lambda parent, child: _is_java(parent) and _is_java(child))


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name == "java"
    except OSError:  # it has ended meanwhile
        return False


def _kind(pid: int, job: int) -> str:
    if pid == job:
        return "the job's own Python"
    return "Spark's JVM" if process_name(pid) == "java" else "Spark's Python workers"


def _proportional(pid: int) -> int:
    lines = read_process_file(pid, "smaps_rollup").splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))

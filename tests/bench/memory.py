"""How much memory a job takes: what the kernel counts as resident (RSS) of each of its processes.

Pages that Python's workers share are counted for each, so a sum is an upper bound.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_WORKERS = "Spark's Python workers"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_by_process(pid: int) -> Counter[str]:
    """Bytes by kind of process, of the job with this process id and of all that it started."""
    resident: Counter[str] = Counter()
    for one in _tree(pid):
        resident["the job's own Python" if one == pid else _name(one)] += _resident(one)
    return resident


def worker_pids(pid: int) -> list[int]:
    """Return the process ids of Spark's Python workers, of the job with this process id."""
    return [one for one in _tree(pid) if one != pid and _name(one) == _WORKERS]


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(children).split():
            yield from _tree(int(child))


def _name(pid: int) -> str:
    return {"java": "Spark's JVM"}.get(_read(Path(f"/proc/{pid}/comm")).strip(), _WORKERS)


def _resident(pid: int) -> int:
    return int((_read(Path(f"/proc/{pid}/statm")).split() or ["0", "0"])[1]) * _PAGE


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return ""

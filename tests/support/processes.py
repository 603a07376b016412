"""The processes of a job, from Linux's `/proc`: Python, Spark's JVM, Spark's Python workers."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def process_tree(pid: int, leaving_out: Callable[[int, int], bool] | None = None) -> Iterator[int]:
    """Yield a process and all its descendants; processes that end meanwhile are missing.

    `leaving_out` gets each parent and child, and returns whether to omit the child and all below it.
    """
    yield pid
    try:
        threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:  # it has ended meanwhile
        return
    for thread in threads:
        for child in map(int, read_process_file(pid, f"task/{thread}/children").split()):
            if not (leaving_out and leaving_out(pid, child)):
                yield from process_tree(child, leaving_out)


def process_name(pid: int) -> str:
    """Return the name of a process's program; empty if it has ended."""
    return read_process_file(pid, "comm").strip()


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    return process_state(pid) not in {"", "Z"}


def process_state(pid: int) -> str:
    """Return the letter of a process's state in `ps` (T if a signal stopped it); empty if it has ended."""
    return "".join(read_process_file(pid, "stat").rpartition(")")[2].split()[:1])


def spark_jvms(pid: int) -> list[int]:
    """Return Spark's JVM of the job with this process id, if there is one."""
    return [one for one in process_tree(pid) if process_name(one) == "java"]


def spark_workers(pid: int) -> list[int]:
    """Return Spark's Python workers of the job with this process id."""
    below = [one for jvm in spark_jvms(pid) for one in process_tree(jvm) if one != jvm]
    return [one for one in below if process_name(one).startswith("python")]


def send_signal(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def read_process_file(pid: int, name: str) -> str:
    """Return the text of a file of a process in `/proc`; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text("utf-8")
    except OSError:
        return ""

"""The disk of the warehouse, which can be full: a small file system where one may be mounted, else limits of files."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from streaming_app.sandbox.process import Startable

_MEGABYTES = 320


class Disk(Startable):
    """A directory in memory, as a file system of its own if this process may mount one.

    Otherwise the processes that write there get a limit of the size of files (`RLIMIT_FSIZE`).
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "filler"
        self._is_mounted = False
        self._limited: list[int] = []

    def start(self) -> None:
        """Mount the file system, if that is allowed."""
        self.directory.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m", "tmpfs", str(self.directory)]
        with suppress(FileNotFoundError):
            self._is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self) -> None:
        """Unmount it."""
        if self._is_mounted:
            subprocess.run(["umount", "--lazy", str(self.directory)], capture_output=True, check=False)

    def fill(self, pids: list[int]) -> None:
        """Leave no space, for these processes at least."""
        if not self._is_mounted:
            self._limited = pids
            return self._limit(1)
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            size = 1 << 20
            while True:
                free = shutil.disk_usage(self.directory).free
                os.posix_fallocate(file.fileno(), file.tell(), max(1, min(size, free)))
                file.seek(0, os.SEEK_END)
        return None

    def free(self) -> None:
        """Make the space available again."""
        self._filler.unlink(missing_ok=True)
        self._limit(resource.RLIM_INFINITY)
        self._limited = []

    def _limit(self, size: int) -> None:
        for pid in self._limited:
            with suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

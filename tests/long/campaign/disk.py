"""Disks that can be full: small file systems where they may be mounted, else limits of files."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from streaming_app.sandbox.process import Startable
from tests.support.processes import is_running


class Disk(Startable):
    """A directory in memory, as a file system of its own if this process may mount one.

    Otherwise the processes that write there get a limit of the size of files (`RLIMIT_FSIZE`).
    """

    def __init__(self, directory: Path, megabytes: int = 320) -> None:
        self.directory, self._megabytes = directory, megabytes
        self._filler = directory / "filler"
        self._is_mounted = False
        self._limited: list[int] = []

    def start(self) -> None:
        """Mount the file system, if that is allowed."""
        while self.directory.is_mount():  # of a campaign that was killed
            self._unmount()
        self.directory.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.directory)]
        with suppress(FileNotFoundError):
            self._is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self) -> None:
        """Unmount it."""
        if self._is_mounted:
            self._unmount()

    def _unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.directory)], capture_output=True, check=True)

    def fill(self, pids: list[int], leave: int = 0) -> None:
        """Leave no space, for these processes at least; or so many bytes, if it is mounted."""
        if not self._is_mounted:
            self._limited = pids
            return self._limit(1)
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            size = 1 << 20
            while (free := shutil.disk_usage(self.directory).free) > leave or not leave:
                os.posix_fallocate(file.fileno(), file.tell(), max(1, min(size, free)))
                file.seek(0, os.SEEK_END)
        return None

    @property
    def is_full(self) -> bool:
        """Whether nothing can be written, by the limited processes at least."""
        if not self._is_mounted:
            return any(resource.prlimit(pid, resource.RLIMIT_FSIZE)[0] == 1 for pid in self._limited if is_running(pid))
        return shutil.disk_usage(self.directory).free == 0

    def free(self) -> None:
        """Make the space available again."""
        self._filler.unlink(missing_ok=True)
        self._limit(resource.RLIM_INFINITY)
        self._limited = []

    def _limit(self, size: int) -> None:
        for pid in self._limited:
            with suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

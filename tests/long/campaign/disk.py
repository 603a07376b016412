"""Disks that can be full: small file systems, where they may be mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from streaming_app.sandbox.process import Startable


class Disk(Startable):
    """A directory in memory, as a file system of its own if this process may mount one; else it is never full."""

    def __init__(self, directory: Path, megabytes: int = 320) -> None:
        self.directory, self._megabytes = directory, megabytes
        self._filler = directory / "filler"
        self._is_mounted = False

    def start(self) -> None:
        """Mount the file system, if that is allowed."""
        while self.directory.is_mount():  # of a campaign that was killed
            self._unmount()
        self.directory.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m", "tmpfs", str(self.directory)]
        with suppress(FileNotFoundError):
            self._is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def stop(self) -> None:
        if self._is_mounted:
            self._unmount()

    def _unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.directory)], capture_output=True, check=True)

    def fill(self, leave: int = 0) -> None:
        """Leave no space, or so many bytes."""
        if not self._is_mounted:
            return
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            size = 1 << 20
            while (free := shutil.disk_usage(self.directory).free) > leave or not leave:
                os.posix_fallocate(file.fileno(), file.tell(), max(1, min(size, free)))
                file.seek(0, os.SEEK_END)

    @property
    def is_full(self) -> bool:
        return self._is_mounted and shutil.disk_usage(self.directory).free == 0

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

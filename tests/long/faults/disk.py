"""Disks that can be full, or slow: small file systems where they may be mounted, else limits of files."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streaming_app.sandbox.process import Startable
from tests.support.processes import is_running

_MEGABYTES = 320
_BLKIO = Path("/sys/fs/cgroup/blkio")  # of cgroup v1; the io controller of v2 is not tried


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
        self._make_directory()
        command = ["mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m", "tmpfs", str(self.directory)]
        with suppress(FileNotFoundError):
            self._is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _make_directory(self) -> None:
        while self.directory.is_mount():  # of a campaign that was killed
            self._unmount()
        self.directory.mkdir(parents=True, exist_ok=True)

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


class BlockDisk(Disk):
    """A file system on a block device, a file: cgroups limit how fast a process writes to it, if it waits for that.

    The page cache takes other writes at once: only what syncs is slow.
    """

    def start(self) -> None:
        """Mount it, if that is allowed. It has no journal: a thread of the kernel would write that, without a limit."""
        self._make_directory()
        image = self.directory.with_suffix(".image")
        with image.open("wb") as file:
            file.truncate(_MEGABYTES << 20)
        make, mount = ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image], ["mount", "-o", "loop", image]
        with suppress(FileNotFoundError, subprocess.CalledProcessError):
            subprocess.run(make, capture_output=True, check=True)
            subprocess.run([*mount, self.directory], capture_output=True, check=True)
            self._is_mounted = True
            (self.directory / "lost+found").rmdir()  # a broker takes each directory for one of a partition

    @contextmanager
    def throttled(self, pids: Iterable[int], bytes_per_second: int) -> Iterator[bool]:
        """Let these processes write only so fast for the time of a block; give whether that was possible."""
        number = self.directory.stat().st_dev
        group = _BLKIO / f"streams-groups-{os.getpid()}"
        try:
            group.mkdir()
            limit = f"{os.major(number)}:{os.minor(number)} {bytes_per_second}"
            (group / "blkio.throttle.write_bps_device").write_text(limit)
            _move(pids, group)
            yield self._is_mounted
        except OSError:
            yield False
        finally:
            with suppress(OSError):
                _move((group / "cgroup.procs").read_text().split(), _BLKIO)
                group.rmdir()


def _move(pids: Iterable[int | str], group: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))

"""The standard streams of a process whose parent closed some: else the next file that is opened takes their number."""

from __future__ import annotations

import os
import sys


def open_standard_streams() -> None:
    """Open on the null device what is closed of the three. To be called before files are opened.

    `sys.stdin` stays None if it is closed, so that a command that is to read it can refuse.
    """
    for descriptor in range(3):
        if not _is_open(descriptor):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - it takes the lowest free number
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True

"""Reads a file that holds a secret, unless every user of the machine may read it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_secret_file(file: Path) -> str:
    """Return the text of the file.

    Raises OSError, also if others than its owner and its group may read it, and UnicodeDecodeError.
    """
    with file.open(encoding="utf-8") as opened:
        if is_open_to_all(os.fstat(opened.fileno())):
            reason = "every user may read it, and it holds a secret: chmod o= it, or mount it with defaultMode 0440"
            raise PermissionError(errno.EPERM, reason, str(file))
        return opened.read()


def is_open_to_all(status: os.stat_result) -> bool:
    """Return whether every user of the machine may read a file."""
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IROTH)

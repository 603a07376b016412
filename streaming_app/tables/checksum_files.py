"""Removes the checksums that Hadoop left in the log of a table in a local directory, of files that are gone.

Hadoop's local file system writes `.NAME.crc` beside each file, and removes both. After its own commits delta-rs removes
the log of old versions, too, and knows of no checksums: those of commits by Spark would become more and more.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_PREFIX, _SUFFIX = ".", ".crc"
_MIN_AGE_SECONDS = 60  # the file of a newer one may just be written


def remove_orphan_checksums(log: Path) -> int:
    """Remove the checksums in this directory whose file is not there; return how many. Raises OSError."""
    with os.scandir(log) as entries:
        files = {entry.name: entry for entry in entries}
    newest = time.time() - _MIN_AGE_SECONDS
    removed = 0
    for name, entry in files.items():
        if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)) or name[1 : -len(_SUFFIX)] in files:
            continue
        with suppress(FileNotFoundError):  # Hadoop has just removed it
            if entry.stat().st_mtime < newest:
                Path(entry).unlink()
                removed += 1
    return removed

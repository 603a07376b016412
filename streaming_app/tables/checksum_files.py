"""Removes the checksums that Hadoop left in the log of a table in a local directory, of files that are gone.

Hadoop's local file system writes a checksum file `.NAME.crc` for each file, and deletes both. delta-rs, which
deletes the log of old versions after its own commits, leaves the checksum files of commits by Spark: they would
pile up.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_PREFIX, _SUFFIX = ".", ".crc"
_MIN_AGE_SECONDS = 60  # the file of a newer one may just be written


def remove_orphan_checksums(log: Path) -> None:
    """Remove the checksums in this directory whose file is not there. Raises OSError."""
    with os.scandir(log) as entries:
        files = {entry.name: entry for entry in entries}
    newest = time.time() - _MIN_AGE_SECONDS
    for name, entry in files.items():
        if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)) or name[1 : -len(_SUFFIX)] in files:
            continue
        with suppress(FileNotFoundError):  # Hadoop has just removed it
            if entry.stat().st_mtime < newest:
                Path(entry).unlink()

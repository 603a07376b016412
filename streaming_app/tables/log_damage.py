"""Moves aside the newest log file of a local Delta table if a power cut damaged it. Deletes nothing.

After a power cut a local file system may have the name of a file but not its content; an object store always writes
whole files. Without its newest commit the table is in its previous state. The job reads the missing rows from Kafka
again (see `stream.table_versions`), as far as Kafka still has them. Only the job that owns the cluster repairs logs.
"""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_app.tables.location import Location

_LOG = "_delta_log"
_POINTER = "_last_checkpoint"
_ASIDE = ".damaged"
_MIN_AGE_SECONDS = 5.0  # a job of another cluster may still be writing a younger file


def repair_logs(tables: Iterable[Location], report: Callable[[str], None]) -> None:
    """Move aside the newest commit and checkpoint of each table if damaged; report a line for each such table."""
    for table in tables:
        if table.is_local and (damaged := damaged_files(table)):
            for file in damaged:
                file.rename(file.with_name(file.name + _ASIDE))
            names = ", ".join(file.name for file in damaged)
            report(
                f"{table.name}: {names} in its {_LOG} cannot be read and was moved aside. The table is now in its "
                "previous state. The job reads the missing rows from Kafka again, as far as Kafka still has them"
            )


def damaged_files(table: Location) -> list[Path]:
    """Return the newest commit or checkpoint of a local table, or both, if they cannot be read. Raises OSError."""
    log = (table / _LOG).path
    names = sorted(file.name for file in log.iterdir()) if log.is_dir() else []
    commits = [log / name for name in names if name.endswith(".json") and name[:-5].isdecimal()]
    checkpoints = [log / name for name in names if name.endswith(".parquet") and ".checkpoint" in name]
    found = [file for file in (*commits[-1:], *checkpoints[-1:]) if _is_damaged(file)]
    pointer = log / _POINTER  # to the newest checkpoint
    if pointer.exists() and (checkpoints[-1:] == found[-1:] != [] or _is_damaged(pointer)):
        found.append(pointer)
    return found


def _is_damaged(file: Path) -> bool:
    is_whole = _is_parquet(file) if file.suffix == ".parquet" else _is_json(file)
    return not is_whole and time.time() - file.stat().st_mtime >= _MIN_AGE_SECONDS


def _is_json(file: Path) -> bool:
    try:
        lines = file.read_text("utf-8").splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


def _is_parquet(file: Path) -> bool:
    try:
        pq.read_metadata(file)
    except (pa.ArrowInvalid, OSError):
        return False
    return True

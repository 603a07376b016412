"""Copies of tables in an object store, for a command: files that do not wait for each other are asked for at once.

Theory of operation
-------------------
delta-rs opens a table with a checkpoint by some fifteen requests that wait for each other, and reads a data file by
four more. Here a few steps read all tables: the pointers to the newest checkpoints; the checkpoints, and some of the
commits after each, which tell how many there are, since versions have no gaps; the other commits; the data files. A
list would tell it as well, but delta-rs holds Python's lock meanwhile. If a pointer is the same at the end, no commit
after that checkpoint was cleaned up before it was read.

A table that is large, or has what this module does not know, is not copied, nor is any if a request fails: delta-rs
opens it then, and has more patience.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming_app.tables.location import Location
from streaming_app.tables.object_store import read_files

_POINTER = "_delta_log/_last_checkpoint"
_LOOKS = (0, 1, 3, 7, 15, 31, 63, 127)
"""Commits after a checkpoint that are looked for first; there is a checkpoint for each fifty."""
_MOST_FILES, _MOST_BYTES = 512, 32 << 20


class _Log:
    """The files of a log that may exist: the newest checkpoint, and the commits after it."""

    def __init__(self, name: str, pointer: bytes | None) -> None:
        found, log = json.loads(pointer) if pointer else {"version": -1}, f"{name}/_delta_log"
        self.is_known = not {"parts", "v2Checkpoint"} & found.keys()
        begin = found["version"] + 1
        self._checkpoint = [f"{log}/{begin - 1:020}.checkpoint.parquet"] if begin else []
        self._commits = [f"{log}/{begin + after:020}.json" for after in range(_LOOKS[-1] + 1)]

    def looks(self) -> list[str]:
        return self._checkpoint + [self._commits[after] for after in _LOOKS]

    def others(self, found: Mapping[str, bytes]) -> list[str]:
        end = next((after for after in _LOOKS if self._commits[after] not in found), 0)
        return self._commits[:end]

    def files(self, found: Mapping[str, bytes]) -> list[str]:
        """Return what is there; nothing if something is missing, or there may be more commits."""
        commits = [*takewhile(found.__contains__, self._commits)]
        is_whole = found.keys() >= {*self._checkpoint} and len(commits) < len(self._commits)
        return self._checkpoint + commits if is_whole else []


def copy_tables(
    warehouse: Location, names: Iterable[str], directory: Path, without_rows: Collection[str] = ()
) -> dict[str, DeltaTable]:
    """Copy the newest versions of tables of a store into a directory, of some only the log; return the copies."""
    with suppress(OSError, ValueError, KeyError, RuntimeError):  # a damaged pointer, no more threads
        return {} if warehouse.is_local else _copied(warehouse, names, directory, without_rows)
    return {}


def _copied(
    warehouse: Location, names: Iterable[str], directory: Path, without_rows: Collection[str]
) -> dict[str, DeltaTable]:
    pointers = {name: f"{name}/{_POINTER}" for name in names}
    found = read_files(warehouse, pointers.values())
    logs = {name: log for name, path in pointers.items() if (log := _Log(name, found.get(path))).is_known}
    parts = read_files(warehouse, [path for log in logs.values() for path in log.looks()])
    parts |= read_files(warehouse, {path for log in logs.values() for path in log.others(parts)} - parts.keys())
    opened, files = dict[str, DeltaTable](), set[str]()
    for name, log in logs.items():
        _write(directory, {path: parts[path] for path in log.files(parts)})
        with suppress(DeltaError):  # there is no table, or nothing of its log
            table = Location(str(directory / name)).delta_table()
            added = pa.table(table.get_add_actions())
            is_small = added.num_rows <= _MOST_FILES and sum(added["size_bytes"].to_pylist()) <= _MOST_BYTES
            if table.protocol().min_reader_version == 1 and (is_small or name in without_rows):
                opened[name] = table
                files |= {f"{name}/{unquote(path)}" for path in added["path"].to_pylist() if name not in without_rows}
    last = read_files(warehouse, files.union(pointers.values()))
    _write(directory, {path: content for path, content in last.items() if path in files})
    lost = {path.partition("/")[0] for path in files - last.keys()}
    lost |= {name for name, path in pointers.items() if last.get(path) != found.get(path)}
    return {name: table for name, table in opened.items() if name not in lost}


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)

"""The sizes of the files in a warehouse while a job writes and removes them."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def file_sizes(warehouse: Path) -> list[int]:
    """Return the bytes of each file below a directory."""
    return [size for file in warehouse.rglob("*") for size in _size(file)]


def _size(file: Path) -> Iterator[int]:
    with suppress(FileNotFoundError):  # removed meanwhile
        if file.is_file():
            yield file.stat().st_size

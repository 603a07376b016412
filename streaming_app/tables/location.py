"""The location of a warehouse (a local directory, or one in an object store), and access to the small files in it.

delta-rs reads and writes the tables; this module names their locations, and reads and writes the small files next to
them. Spark reads and writes the checkpoints.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from streaming_app.errors import WarehouseError, reason_of
from streaming_app.tables import object_store

if TYPE_CHECKING:
    from deltalake import DeltaTable

_STORE_SECONDS = 30.0
_HOST = r"[\w.-]+(:\d+)?"
_STORES = {
    "s3a": ("s3a://BUCKET/DIRECTORY", r"[\w.-]+"),
    "abfss": ("abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/DIRECTORY", rf"[\w-]+@{_HOST}"),
    "gs": ("gs://BUCKET/DIRECTORY", r"[\w.-]+"),
    "hdfs": ("hdfs://HOST:PORT/DIRECTORY", _HOST),
}
"""By scheme that both Spark's file systems and delta-rs support: the form of the URI, and its authority as a regex."""

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_DIRECTORIES = r"(/(?!\.\.?(/|$))[\w.=+~-]+)*"  # nothing that needs escapes: Hadoop and delta-rs escape differently


def _local(path: str) -> str:
    if escape := _ESCAPE.search(path):
        raise ValueError(f'must not contain "{escape[0]}": delta-rs would decode it')
    return str(Path(path).expanduser())


@contextmanager
def warehouse_errors(verb: str, place: Location) -> Iterator[None]:
    """Raise WarehouseError, which names a file or directory, instead of OSError."""
    try:
        yield
    except OSError as error:
        raise WarehouseError(f"Cannot {verb} {place}: {reason_of(error)}") from None


class Location:
    """A directory or a file. `str()` gives the path or URI for Spark and delta-rs; `location / name` is one below it.

    Not a dataclass, since pydantic-settings would parse a dataclass as JSON.
    """

    def __init__(self, uri: str) -> None:
        """Take a valid path or URI; `of` checks arbitrary text."""
        self._uri = uri

    @classmethod
    def of(cls, value: Location | Path | str) -> Location:
        """Return the location for a path or URI. Raises ValueError, with the valid forms, if the text is invalid."""
        if isinstance(value, Location):
            return value
        text = str(value)
        scheme = _URI.match(text)
        if scheme is None:
            return cls(_local(text))
        if scheme["scheme"] == "file":
            parts = urlsplit(text)
            if not parts.netloc and not parts.query and not parts.fragment:
                return cls(_local(unquote(parts.path)))
        elif store := _STORES.get(scheme["scheme"]):
            form, authority = store
            uri = text.rstrip("/")
            if re.fullmatch(rf"{scheme['scheme']}://{authority}{_DIRECTORIES}", uri, re.ASCII):
                return cls(uri)
            raise ValueError(f"must be {form}, with letters, digits and -_.=+~ only, and without credentials")
        forms = ", ".join(form for form, _ in _STORES.values())
        raise ValueError(f'must be a directory, file:///DIRECTORY, {forms}, not "{text}"')

    @property
    def is_local(self) -> bool:
        """Whether it is in a file system of this machine."""
        return _URI.match(self._uri) is None

    @property
    def pause(self) -> float:
        """Seconds between two checks for new small files, or two writes of one: requests to a store cost money."""
        return 0.0 if self.is_local else _STORE_SECONDS

    @property
    def path(self) -> Path:
        """The path of a local location. Raises ValueError for a store."""
        if not self.is_local:
            raise ValueError(f"{self._uri} is not a local path")
        return Path(self._uri)

    @property
    def name(self) -> str:
        """The last component."""
        return self._uri.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The directory that contains it."""
        return Location(os.path.dirname(self._uri))  # noqa: PTH120 - URIs, too

    @property
    def storage_options(self) -> dict[str, str] | None:
        """The `storage_options` to pass to delta-rs; None for a local location."""
        return None if self.is_local else dict(object_store.STORAGE_OPTIONS)

    def absolute(self) -> Location:
        """Return the location independent of the working directory."""
        return Location(str(self.path.absolute())) if self.is_local else self

    def __str__(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"Location({self._uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self._uri == other._uri

    def __hash__(self) -> int:
        return hash(self._uri)

    def __truediv__(self, name: str) -> Location:
        return Location(os.path.join(self._uri, name))  # noqa: PTH118 - URIs, too

    def delta_table(self) -> DeltaTable:
        """Open the Delta table here. Raises deltalake's TableNotFoundError, or errors for `describe_error`."""
        from deltalake import DeltaTable  # noqa: PLC0415 - code that only names locations does not load it

        return DeltaTable(self._uri, storage_options=self.storage_options)

    def read_text(self, *, may_be_empty: bool = True) -> str:
        """Return the text of the file. Raises FileNotFoundError, and OSError for any other failure.

        In a store a file that cannot be empty is one request instead of two: nobody asks for its size.
        """
        if self.is_local:
            return self.path.read_text("utf-8")
        known = {} if may_be_empty else {self.name: object_store.MANY_BYTES}
        content = object_store.in_directory(
            str(self.parent), lambda directory: directory.open_input_file(self.name).read(), known=known
        )
        return str(content, "utf-8")

    def find_text(self, *, may_be_empty: bool = True) -> str | None:
        """Return the text of the file, as `read_text` does; None if there is none. Raises OSError."""
        try:
            return self.read_text(may_be_empty=may_be_empty)
        except FileNotFoundError:
            return None

    def write_text(self, text: str) -> None:
        """Write the file atomically, and create missing parent directories. Raises OSError."""
        self.write_bytes(text.encode())

    def write_bytes(self, content: bytes) -> None:
        """Write the file as `write_text` does."""
        if self.is_local:
            file = self.path
            file.parent.mkdir(parents=True, exist_ok=True)
            new = file.with_name(f"{file.name}.new")
            new.write_bytes(content)
            new.replace(file)  # atomic: readers see the old text or the new one
            return
        object_store.write_file(str(self.parent), self.name, content)

    def copy_from(self, name: str) -> None:
        """Write this file of a store as a copy of another one, below the same directory: it gets another time.

        That is one request. Raises FileNotFoundError if there is no such file, and OSError.
        """
        object_store.in_directory(str(self.parent), lambda directory: directory.copy_file(name, self.name))

    def modified(self) -> str | None:
        """Return when this file of a store was written, by the clock of the store; None if there is none.

        Raises OSError.
        """
        found = object_store.in_directory(str(self.parent), lambda directory: directory.get_file_info([self.name])[0])
        return None if found.mtime is None else str(found.mtime_ns)

    def remove(self) -> None:
        """Remove the file; it may be missing. Raises OSError."""
        if self.is_local:
            self.path.unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):
            object_store.in_directory(str(self.parent), lambda directory: directory.delete_file(self.name))

    def remove_directory(self) -> None:
        """Remove the directory with its contents; it may be missing. Raises OSError."""
        with suppress(FileNotFoundError):
            if self.is_local:
                shutil.rmtree(self.path)
                return
            object_store.in_directory(str(self.parent), lambda directory: directory.delete_dir(self.name))

    def names(self) -> list[str]:
        """Return the names in the directory; empty if it does not exist. Raises OSError when it cannot be read."""
        if self.is_local:
            try:
                return [entry.name for entry in self.path.iterdir()]
            except FileNotFoundError:
                return []
        return [entry.base_name for entry in self._entries(recursive=False)]

    def count_files(self) -> Counter[str]:
        """Return the number of files below each directory here, at any depth. Raises OSError if one cannot be read."""
        if self.is_local:
            return Counter({name: sum(len(one[2]) for one in os.walk(self.path / name)) for name in self.names()})
        return Counter(entry.path.partition("/")[0] for entry in self._entries(recursive=True) if entry.is_file)

    def _entries(self, *, recursive: bool) -> list[Any]:
        allow_missing = True
        entries: list[Any] = object_store.in_directory(
            self._uri, lambda directory: directory.get_file_info_selector("", allow_missing, recursive)
        )
        return entries

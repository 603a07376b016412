"""Where a warehouse is: a directory of this machine or of an object store, and how to read what stands there.

Tables are read by delta-rs; this is for their names, and for the few small files beside them. How these are written is
the job's affair: see `job/files.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from streaming_app.serve import stores

if TYPE_CHECKING:
    from deltalake import DeltaTable

_HOST = r"[\w.-]+(:\d+)?"
_STORES = {
    "s3a": ("s3a://BUCKET/DIRECTORY", r"[\w.-]+"),
    "abfss": ("abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/DIRECTORY", rf"[\w-]+@{_HOST}"),
    "gs": ("gs://BUCKET/DIRECTORY", r"[\w.-]+"),
    "hdfs": ("hdfs://HOST:PORT/DIRECTORY", _HOST),
}
"""By the schemes that Spark's file systems and delta-rs both know: how to write it, and what stands before the path."""

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")
_DIRECTORIES = r"(/(?!\.\.?(/|$))[\w.=+~-]+)*"  # what needs no escape: Hadoop and delta-rs escape otherwise


class Place:
    """A directory or a file. `str()` gives it as Spark and delta-rs take it, `/` what is below it.

    Not a dataclass: pydantic-settings would read those as JSON.
    """

    def __init__(self, uri: str) -> None:
        """Take a path, or a URI of a store, that needs no check; for others there is `of`."""
        self._uri = uri

    @classmethod
    def of(cls, where: Place | Path | str) -> Place:
        """The place that a path or a URI names. Raises ValueError, with what it must be, for any other text."""
        if isinstance(where, Place):
            return where
        text = str(where)
        scheme = _URI.match(text)
        if scheme is None:
            return cls(str(Path(text)))
        if scheme["scheme"] == "file":
            parts = urlsplit(text)
            if not parts.netloc and not parts.query and not parts.fragment:
                return cls(str(Path(unquote(parts.path))))
        elif store := _STORES.get(scheme["scheme"]):
            _, authority = store
            plain = text.rstrip("/")
            if re.fullmatch(rf"{scheme['scheme']}://{authority}{_DIRECTORIES}", plain, re.ASCII):
                return cls(plain)
            raise ValueError(f"must be {store[0]}, with letters, digits and -_.=+~ only, and no credentials in it")
        forms = ", ".join(form for form, _ in _STORES.values())
        raise ValueError(f'must be a directory, file:///DIRECTORY, {forms}, not "{text}"')

    @property
    def is_local(self) -> bool:
        """Whether it is of a file system of this machine."""
        return _URI.match(self._uri) is None

    @property
    def path(self) -> Path:
        """The same as a path, of a place that is local."""
        if not self.is_local:
            raise ValueError(f"{self._uri} has no path")
        return Path(self._uri)

    @property
    def name(self) -> str:
        """Its last part."""
        return self._uri.rpartition("/")[2]

    @property
    def parent(self) -> Place:
        """The directory that it is in."""
        return Place(os.path.dirname(self._uri))  # noqa: PTH120 - URIs, too

    @property
    def options(self) -> dict[str, str] | None:
        """The `storage_options` that delta-rs needs for it."""
        return None if self.is_local else dict(stores.OPTIONS)

    def absolute(self) -> Place:
        """The same, whatever the working directory."""
        return Place(str(self.path.absolute())) if self.is_local else self

    def __str__(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"Place({self._uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self._uri == other._uri

    def __hash__(self) -> int:
        return hash(self._uri)

    def __truediv__(self, below: str) -> Place:
        return Place(os.path.join(self._uri, below))  # noqa: PTH118 - URIs, too

    def delta_table(self) -> DeltaTable:
        """Open the Delta table here. Raises deltalake's TableNotFoundError, or what `stores.reason` puts into words."""
        from deltalake import DeltaTable  # noqa: PLC0415 - who only names places loads no more

        return DeltaTable(self._uri, storage_options=self.options)

    def is_delta_table(self) -> bool:
        """Whether a Delta table is here. Raises what `stores.reason` puts into words."""
        from deltalake import DeltaTable  # noqa: PLC0415 - as above

        return DeltaTable.is_deltatable(self._uri, storage_options=self.options)

    def read_text(self) -> str:
        """The text of the file. Raises FileNotFoundError, and OSError for any other trouble."""
        if self.is_local:
            return self.path.read_text("utf-8")
        directory, _, name = self._uri.rpartition("/")
        with stores.file_system(directory) as store, store.open_input_file(name) as file:
            return str(file.read(), "utf-8")

    def names(self) -> list[str]:
        """The names in the directory; none where there is no such directory. Raises OSError when it cannot be read."""
        if self.is_local:
            try:
                return [entry.name for entry in self.path.iterdir()]
            except FileNotFoundError:
                return []
        return [entry.base_name for entry in self._entries(recursive=False)]

    def count_files(self) -> int:
        """How many files there are in the directory, at any depth. Raises OSError when it cannot be read."""
        if self.is_local:
            return sum(len(files) for _, _, files in os.walk(self.path))
        return sum(1 for entry in self._entries(recursive=True) if entry.is_file)

    def _entries(self, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - as above

        with stores.file_system(self._uri) as store:
            found: list[Any] = store.get_file_info(FileSelector("", allow_not_found=True, recursive=recursive))
        return found

"""The small files next to the tables that the job writes: the topic it reads, the time of maintenance, the heartbeat.

In a store it writes them as Spark writes its checkpoint: with Spark's CheckpointFileManager and Hadoop's configuration.
So they work wherever a checkpoint works, and writes are as atomic as the store allows.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from streaming_app.errors import JobError, java_error_message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_app.tables.location import Location

_MISSING_FILE_SYSTEM = re.compile(r"Class \S*FileSystem\S* not found")
_MISSING = "java.io.FileNotFoundException"


class Files(Protocol):
    """The file operations that the job needs. Each raises JobError or OSError when the file system refuses it."""

    def read(self, location: Location) -> str | None:
        """Return the text of a file; None if there is none."""

    def write(self, location: Location, text: str) -> None:
        """Write the file, replacing an existing one, and create the directories that it needs."""

    def exists(self, location: Location) -> bool:
        """Return whether there is a file or a directory."""

    def remove(self, location: Location) -> None:
        """Remove a file, or a directory with its contents; it may be missing."""


def warehouse_files(warehouse: Location, spark: SparkSession) -> Files:
    """Return the file operations for `warehouse`: in a store they go through Spark's JVM."""
    return _LocalFiles() if warehouse.is_local else _HadoopFiles(spark)


class _LocalFiles:
    def read(self, location: Location) -> str | None:
        try:
            return location.read_text()
        except FileNotFoundError:
            return None

    def write(self, location: Location, text: str) -> None:
        location.write_text(text)

    def exists(self, location: Location) -> bool:
        return location.path.exists()

    def remove(self, location: Location) -> None:
        if location.path.is_dir():
            shutil.rmtree(location.path)
        else:
            location.path.unlink(missing_ok=True)


class _HadoopFiles:
    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - nor has this
        self._managers = self._find_managers()

    def read(self, location: Location) -> str | None:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - only the job loads Spark

        with _as_job_error(location):
            try:
                stream = self._manager(location).open(self._path(location))
            except Py4JJavaError as error:
                if error.java_exception.getClass().getName() == _MISSING:
                    return None
                raise
            try:
                return bytes(stream.readAllBytes()).decode("utf-8")
            finally:
                stream.close()

    def write(self, location: Location, text: str) -> None:
        with _as_job_error(location):
            manager, path = self._manager(location), self._path(location)
            manager.mkdirs(path.getParent())
            stream = manager.createAtomic(path, True)  # noqa: FBT003 - Java's signature: overwriteIfPossible
            try:
                stream.write(bytearray(text, "utf-8"))
                stream.close()
            except BaseException:
                stream.cancel()
                raise

    def exists(self, location: Location) -> bool:
        with _as_job_error(location):
            return bool(self._manager(location).exists(self._path(location)))

    def remove(self, location: Location) -> None:
        with _as_job_error(location):
            self._manager(location).delete(self._path(location))

    def _find_managers(self) -> Any:  # noqa: ANN401 - a Java object
        package = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing
        return getattr(getattr(package, "CheckpointFileManager$"), "MODULE$")

    def _manager(self, location: Location) -> Any:  # noqa: ANN401 - a Java object
        return self._managers.create(self._path(location), self._conf)

    def _path(self, location: Location) -> Any:  # noqa: ANN401 - a Java object
        return self._jvm.org.apache.hadoop.fs.Path(str(location))


@contextmanager
def _as_job_error(location: Location) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - as above

    try:
        yield
    except Py4JJavaError as error:
        raise JobError(f"Cannot read or write {location}: {_describe(error)}") from None


def _describe(error: Exception) -> str:
    line = java_error_message(error)
    if "No FileSystem for scheme" in line or _MISSING_FILE_SYSTEM.search(line):
        return f"{line}: add the jar for this kind of store with the setting spark.jars.packages, see deploy/README.md"
    return line

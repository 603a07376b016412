"""The small files that the job keeps beside the tables: which topic it reads, when upkeep was done, its sign of life.

In a store they are written as Spark writes its checkpoint: by its own file manager, through Hadoop's configuration. So
they can be where a checkpoint can be, and are there whole or not at all, as far as the store allows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from streaming_app.job.errors import JobError, java_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_app.serve.place import Place

_MISSING = "java.io.FileNotFoundException"


class Files(Protocol):
    """What the job does with them. Each raises JobError or OSError where the file system does not let it."""

    def read(self, place: Place) -> str | None:
        """The text of a file; None where there is none."""

    def write(self, place: Place, text: str) -> None:
        """Put the text there, with the directories that it needs, in place of what there was."""

    def exists(self, place: Place) -> bool:
        """Whether there is a file or a directory."""

    def remove(self, place: Place) -> None:
        """Remove a file, or a directory with all that is in it; it may be missing."""


def files_at(warehouse: Place, spark: SparkSession) -> Files:
    """The files of a warehouse."""
    return _Local() if warehouse.is_local else _Remote(spark)


class _Local:
    def read(self, place: Place) -> str | None:
        try:
            return place.path.read_text("utf-8")
        except FileNotFoundError:
            return None

    def write(self, place: Place, text: str) -> None:
        file = place.path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.new")
        new.write_text(text, "utf-8")
        new.replace(file)

    def exists(self, place: Place) -> bool:
        return place.path.exists()

    def remove(self, place: Place) -> None:
        if place.path.is_dir():
            shutil.rmtree(place.path)
        else:
            place.path.unlink(missing_ok=True)


class _Remote:
    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the JVM has no public name
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - nor has this

    def read(self, place: Place) -> str | None:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded by those who need it

        with _told(place):
            try:
                stream = self._manager(place).open(self._path(place))
            except Py4JJavaError as error:
                if error.java_exception.getClass().getName() == _MISSING:
                    return None
                raise
            try:
                return bytes(stream.readAllBytes()).decode("utf-8")
            finally:
                stream.close()

    def write(self, place: Place, text: str) -> None:
        with _told(place):
            manager, path = self._manager(place), self._path(place)
            manager.mkdirs(path.getParent())
            stream = manager.createAtomic(path, True)  # noqa: FBT003 - Java's: an older file may be there
            try:
                stream.write(bytearray(text, "utf-8"))
                stream.close()
            except BaseException:
                stream.cancel()
                raise

    def exists(self, place: Place) -> bool:
        with _told(place):
            return bool(self._manager(place).exists(self._path(place)))

    def remove(self, place: Place) -> None:
        with _told(place):
            self._manager(place).delete(self._path(place))

    def _manager(self, place: Place) -> Any:  # noqa: ANN401 - a Java object
        companion = getattr(self._jvm.org.apache.spark.sql.execution.streaming, "CheckpointFileManager$")
        return getattr(companion, "MODULE$").create(self._path(place), self._conf)

    def _path(self, place: Place) -> Any:  # noqa: ANN401 - a Java object
        return self._jvm.org.apache.hadoop.fs.Path(str(place))


@contextmanager
def _told(place: Place) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - as above

    try:
        yield
    except Py4JJavaError as error:
        raise JobError(f"Cannot read or write {place}: {java_line(error)}") from None

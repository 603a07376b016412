"""Makes the archive of Spark's classes while the job runs, for its next starts: `streaming_app.jvm.class_archive`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streaming_app.errors import SetupError
from streaming_app.jvm.class_archive import archive_path, make_archive, reason_for_none
from streaming_app.jvm.jar_sets import DIRECTORY_VARIABLE, find_jars, spark_jars
from streaming_app.text import megabytes

_AFTER_SECONDS = 600.0  # then even a long catch-up is mostly done
_END_SECONDS = 2.0


@contextmanager
def making_class_archive(report: Callable[[str], None], after: float = _AFTER_SECONDS) -> Iterator[None]:
    """In the block, after this many seconds, make the archive in the cache unless it exists.

    Where STREAMS_GROUPS_JARS names a directory, that was prepared ahead, with an archive or without.
    """
    stop = threading.Event()

    def make() -> None:
        if stop.wait(after):
            return
        try:
            jars = find_jars(spark_jars())
            if archive_path(jars).is_file():
                return
            report("Making an archive of Spark's classes, with which later starts are faster (once, a minute) ...")
            if path := make_archive(jars, is_stopping=stop.is_set):
                report(f"Made the archive of Spark's classes: {megabytes(path.stat().st_size)} in the cache")
        except (SetupError, OSError) as error:
            if not stop.is_set():
                report(f"There is no archive of Spark's classes: {error}")

    thread = threading.Thread(target=make, name="class-archive", daemon=True)
    if DIRECTORY_VARIABLE not in os.environ and reason_for_none() is None:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread.is_alive():
            thread.join(_END_SECONDS)

"""The service that makes the archive of Spark's classes, for later starts of the job: `jvm.class_archive`."""

from __future__ import annotations

import os

from streaming_app.job.service import Service
from streaming_app.jvm.class_archive import archive_path, make_archive, reason_for_none
from streaming_app.jvm.jar_sets import DIRECTORY_VARIABLE, find_jars, spark_jars
from streaming_app.report import Report
from streaming_app.text import megabytes

_AFTER_SECONDS = 600.0  # then even a long catch-up is mostly done


def can_make_archive() -> bool:
    """Return whether the archive can be made here.

    Where STREAMS_GROUPS_JARS names a directory, that was prepared ahead, with an archive or without.
    """
    return DIRECTORY_VARIABLE not in os.environ and reason_for_none() is None


class ClassArchiveService(Service):
    """Makes the archive in the cache, after some time, unless it exists; tries that once."""

    def __init__(self, report: Report, after: float = _AFTER_SECONDS) -> None:
        """Prepare; `after` is in seconds."""
        super().__init__("class archive", report, interval=None, after=after)

    def tick(self) -> None:
        """Make the archive. Raises SetupError or OSError."""
        jars = find_jars(spark_jars())
        if archive_path(jars).is_file():
            return
        self.report("Making an archive of Spark's classes, with which later starts are faster (once, a minute) ...")
        if path := make_archive(jars, is_stopping=self.stopping.is_set):
            self.report(f"Made the archive of Spark's classes: {megabytes(path.stat().st_size)} in the cache")

    def failed(self, text: str) -> str:
        """Return the line about an archive that could not be made."""
        return f"There is no archive of Spark's classes: {text}"

"""Reads a log into a fresh warehouse, in a session that exists already."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.tables.delta_writer import DeltaWriter
from tests.job.job_runner import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AfreshReader:
    """Makes warehouses as a job does to which nothing happens."""

    def __init__(self, spark: SparkSession, template: Path) -> None:
        """Create empty tables at `template`: copies of them are faster than new ones."""
        self._spark, self._template = spark, template
        if not template.exists():
            DeltaWriter(spark, str(template), "default").prepare()

    def __call__(self, server: str, warehouse: Path) -> None:
        """Read the log of the broker at `server` into a new warehouse."""
        shutil.copytree(self._template, warehouse)
        run_once(self._spark, server, warehouse)

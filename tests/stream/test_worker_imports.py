"""What a worker of Spark loads before it folds its first record: each of them does, at each start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A worker finds these modules by the functions that `mapInArrow` gets.
_OF_WORKERS = ("streaming_app.stream.fold_stage", "streaming_app.stream.newest_records")
_NOT_FOR_WORKERS = {"kafka", "cryptography", "urllib3", "pydantic", "deltalake", "pyspark", "click", "starlette"}


@pytest.mark.parametrize("module", _OF_WORKERS)
def test_a_worker_loads_nothing_that_only_the_driver_needs(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in ran.stdout.split()}
    assert "pyarrow" in loaded
    assert loaded & _NOT_FOR_WORKERS == set()


def test_a_worker_of_the_session_has_no_archive_on_its_path_and_the_packages_all_the_same(spark: SparkSession) -> None:
    def on_path(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import py4j  # noqa: PLC0415 - in the worker

        homes = [str(Path(module.__file__).parent) for module in (pyspark, py4j)]
        archives = [one for one in sys.path if Path(one).is_file()]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"text": [*homes, *archives]})

    rows = spark.range(1).mapInArrow(on_path, "text string").collect()
    assert [Path(row.text).name for row in rows] == ["pyspark", "py4j"]

"""The empty warehouse that tests copy, as the job creates it with Spark: made once for a checkout.

It is kept in `build/test-jvm`, under a name made of all that decides what the job creates: the definitions of the
tables, the code of the room that creates them, and the versions of Delta.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from filelock import FileLock

from streaming_app.tables import spark_writer
from streaming_app.tables.definitions import tables
from streaming_app.tables.spark_writer import SparkWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIRECTORY = Path(__file__).parents[2] / "build" / "test-jvm"
_DECIDING = ("delta-spark", "deltalake", "pyspark")


def warehouse_template(spark: Callable[[], SparkSession]) -> Path:
    """Return the template; the session is asked for only if there is none yet. For any number of processes at once."""
    path = template_path()
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with FileLock(DIRECTORY / "warehouse.lock"):
        if not path.exists():
            for old in DIRECTORY.glob("warehouse-*"):
                shutil.rmtree(old)
            with TemporaryDirectory(dir=DIRECTORY) as directory:
                created = Path(directory, "warehouse")
                SparkWriter(spark(), str(created), "default").prepare()
                created.rename(path)
    return path


def template_path() -> Path:
    """Return where the template is, if it has been made."""
    return DIRECTORY / f"warehouse-{_fingerprint()}"


def _fingerprint() -> str:
    code = (file.read_text("utf-8") for file in sorted(Path(spark_writer.__file__).parent.glob("*.py")))
    parts = [*map(version, _DECIDING), *map(repr, tables()), *code]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

"""Which versions of Spark and Delta Lake were tested together. Only that table, and what is said about others."""

from __future__ import annotations

import importlib.metadata
from typing import NamedTuple


class SparkAndDelta(NamedTuple):
    """Versions of `pyspark` and `delta-spark`, which also decide those of the jars."""

    spark: str
    delta: str

    def __str__(self) -> str:
        return f"Spark {self.spark} with Delta Lake {self.delta}"


TESTED = (SparkAndDelta("4.0.0", "4.0.0"), SparkAndDelta("4.1.1", "4.1.0"), SparkAndDelta("4.2.0", "4.4.0"))
"""All tests run with the first, which `pyproject.toml` pins; with the others, those that docs/operating.md names."""


def installed() -> SparkAndDelta:
    """Return the installed versions."""
    return SparkAndDelta(importlib.metadata.version("pyspark"), importlib.metadata.version("delta-spark"))


def untested_warning(versions: SparkAndDelta) -> str | None:
    """Return a line about versions that were not tested together, with the command that installs tested ones."""
    if versions in TESTED:
        return None
    newest = TESTED[0]
    return (
        f"{versions} was not tested (tested: {', '.join(map(str, TESTED))}); if the job fails, "
        f"`pip install pyspark=={newest.spark} delta-spark=={newest.delta}`"
    )

"""Options for the JVMs that tests start.

They live for seconds or process little, so what counts is the processor time until their code is fast enough: for
Spark's the first tier of the JIT compiler only, as the brokers of `streaming_app.sandbox` have it, and one thread that
collects garbage; for all of them the archives of `jvm_archive`. A user's job has none of these: `tests/job/test_job.py`
starts one with `start_jvms_as_users_do`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from streaming_app.sandbox import jvm_command

SPARK, KAFKA = "spark", "kafka"
FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
"""Read by `spark-submit` for the driver's JVM, and for the one that finds its command line."""


def start_jvms_fast(archives: Mapping[str, Path]) -> None:
    """Set the options for the JVMs of this process, and Spark's for the processes that it starts.

    Variables that are set already are kept.
    """
    shared = {name: f"-XX:SharedArchiveFile={path}" for name, path in archives.items()}
    spark = " ".join((FAST, *(option for name, option in shared.items() if name == SPARK)))
    for name, options in zip(VARIABLES, (spark, FAST), strict=True):
        os.environ.setdefault(name, options)
    jvm_command._FLAGS += tuple(option for name, option in shared.items() if name == KAFKA)


def start_jvms_as_users_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables for the rest of a test."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

"""Options for the JVMs that tests start.

They live for seconds or process little, so what counts is the processor time until their code is fast enough: for
Spark's the first tier of the JIT compiler only, as the brokers of `streaming_app.sandbox` have it, and one thread that
collects garbage; as much room for compiled code as with all tiers, else the JVM of a session soon looks all the time
for methods to throw away; for brokers the archive of `jvm_archive`. The session that tests share interprets its plans,
which are many, each with few rows. A user's job has none of these: `tests/job/test_other_installations.py` starts one
with `start_jvms_as_users_do`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
SHARED_SESSION = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of the session that tests share. Jobs that tests start as commands compile, as those of users do."""
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
"""Read by `spark-submit` for the driver's JVM, and for the one that finds its command line."""


def start_jvms_fast(broker_archive: Path | None) -> None:
    """Set the options for the JVMs of this process, and Spark's for the processes that it starts.

    Variables that are set already are kept.
    """
    for name in VARIABLES:
        os.environ.setdefault(name, FAST)
    if broker_archive:
        from streaming_app.sandbox import broker  # noqa: PLC0415 - kafka-python warns when it is imported, see conftest

        broker.JVM_OPTIONS += (f"-XX:SharedArchiveFile={broker_archive}",)


def start_jvms_as_users_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables for the rest of a test."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

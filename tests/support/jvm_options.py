"""Options for the JVMs that tests start.

They live for seconds or process little, so the processor time until their code is fast matters most. Spark's JVMs get
only the first tier of the JIT compiler (as the brokers of `streaming_app.sandbox` do), one garbage collector thread,
and as much room for compiled code as with all tiers: else the JVM of a session would soon search all the time for
methods to discard. Brokers get the archive of `jvm_archive`. The session that tests share interprets its plans: there
are many, each with few rows. A user's job has none of these options; `tests/job/test_other_installations.py` starts
such a job.
"""

import os
from pathlib import Path

FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
SHARED_SESSION = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings of the session that tests share. Jobs that tests start as commands compile plans, as users' jobs do."""
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
"""`spark-submit` reads it, for the driver's JVM and for the JVM that computes its command line."""


def start_jvms_fast(broker_archive: Path | None) -> None:
    """Set the options for the JVMs of this process, and Spark's also for the processes that it starts.

    Variables that are already set are kept.
    """
    for name in VARIABLES:
        os.environ.setdefault(name, FAST)
    if broker_archive:
        from streaming_app.sandbox import broker  # noqa: PLC0415 - kafka-python warns when it is imported, see conftest

        broker.JVM_OPTIONS += (f"-XX:SharedArchiveFile={broker_archive}",)

"""An archive of the classes that the job's JVM loads (AppCDS): a start takes half the time with it.

It is made once for a version of Java and of the jars, and kept in the directory for temporary files.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from streaming_app.errors import UserError
from streaming_app.jvm.jar_sets import find_jars, spark_jars
from streaming_app.jvm.java import java_home
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from tests.history.operations import Operations
from tests.job.job_runner import STREAMS_GROUPS

_STEPS = 100  # operations on groups, whose records the recorded run processes
_RUN_SECONDS = 1_800
# The JVM writes the archive when it exits, which takes longer than the job lets it.
_SETUP = (
    "from streaming_app.job import session; session._CLOSE_SECONDS = 500; "
    "from streaming_app.stream import micro_batch; micro_batch._FEW_RECORDS = 200; "
)


def class_archive(report: Callable[[str], None]) -> Path | None:
    """Return the archive, made if it is missing; None if that fails: then the campaign is slower."""
    jars = [f"{jar.name} {jar.stat().st_size}" for jar in find_jars(spark_jars())]
    java = subprocess.run([java_home() / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
    key = hashlib.sha256("\n".join([java.stderr, *jars]).encode()).hexdigest()[:16]
    archive = Path(tempfile.gettempdir()) / f"streams-groups-classes-{key}.jsa"
    if not archive.exists():
        report(f"Making {archive} ...")
        try:
            _make(archive)
        except (UserError, OSError, subprocess.SubprocessError) as error:
            report(f"No archive of classes: {error}")
            return None
    return archive


def _make(archive: Path) -> None:
    """Record a run of the job, as a new file: another campaign may be making it, too."""
    new = archive.with_suffix(f".{os.getpid()}")
    with (
        tempfile.TemporaryDirectory(prefix="streams-groups-classes-") as directory,
        LocalBroker(Path(directory) / "broker") as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        operations = Operations(client, broker.bootstrap_server, seed=1)
        for _ in range(_STEPS):
            operations.step()
        python, option, program = STREAMS_GROUPS
        subprocess.run(
            [
                *(python, option, _SETUP + program, "run", "--once"),
                *("--bootstrap-server", broker.bootstrap_server, "--warehouse", f"{directory}/warehouse"),
                *("--conf", f"spark.driver.extraJavaOptions=-XX:ArchiveClassesAtExit={new}"),
            ],
            capture_output=True,
            timeout=_RUN_SECONDS,
            check=True,
        )
    new.replace(archive)

"""Writes the list of classes that Spark's JVM loads in a job: `python -m tests.support.class_list`.

The job reads a broker with groups, writes its tables, reads again what is new, and is then at rest. The list is for
`streaming_app.jvm.class_archive`; classes that another Java does not have are left out when the archive is made.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming_app.jvm import class_archive
from streaming_app.jvm.spark_installation import installed_spark

# What a later run does not have, and what lets Java make classes for the archive that its own modules may not have:
# a JVM with an agent or a flight recorder looks there for each class of an archive, and crashes if it finds none (17).
_LEFT_OUT = (b"GeneratedClass", b"/tmp/", b"[SPECIES_RESOLVE]")


def main() -> None:
    """Write the file in the place where `class_list` finds it."""
    with TemporaryDirectory() as made:
        names = Path(made, "classes")
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:DumpLoadedClassList={names}"
        _run_job(Path(made))
        lines = names.read_bytes().splitlines(keepends=True)
        lines = [line for line in lines if not any(part in line for part in _LEFT_OUT)]
    path = Path(class_archive.__file__).parent / "class_lists" / f"spark-{installed_spark()}.txt.gz"
    path.write_bytes(gzip.compress(b"".join(lines), 9, mtime=0))
    print(f"{path.name}: {len(lines):,} lines")


def _run_job(directory: Path) -> None:
    from streaming_app.jvm.spark_session import spark_session  # noqa: PLC0415 - these load Spark
    from streaming_app.kafka.client import StreamsGroupClient  # noqa: PLC0415
    from streaming_app.sandbox.broker import LocalBroker  # noqa: PLC0415
    from streaming_app.sandbox.demo_groups import create_demo_groups  # noqa: PLC0415
    from tests.support.job_runner import run_once  # noqa: PLC0415

    with (
        spark_session(directory / "spark.log", progress=print) as spark,
        LocalBroker(directory / "broker") as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        groups = create_demo_groups(client)
        for _ in range(2):
            settings = {"offsets": {"enabled": True}, "lag": {"enabled": True}}
            run_once(spark, broker.bootstrap_server, directory / "warehouse", **settings)
        groups.close()


if __name__ == "__main__":
    main()

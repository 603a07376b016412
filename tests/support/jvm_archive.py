"""Makes the archives from which the tests' JVMs start, once per checkout: `python -m tests.support.jvm_archive`.

Spark's archive is the one that users also get (see `streaming_app.jvm.class_archive`). A broker loads 8,000 classes
before it answers. To make its archive, a broker does what the brokers of the tests do, and writes the archive when it
exits. Without an archive, or with one that does not fit, a JVM starts as usual.
"""

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from streaming_app.errors import SetupError
from streaming_app.jvm.class_archive import make_archive
from streaming_app.jvm.jars import connector_jars, find_jars, kafka_jars
from streaming_app.jvm.spark_installation import spark_home, spark_java_home
from streaming_app.jvm.spark_jvm import archive_path
from tests.support.jvm_options import FAST

DIRECTORY = Path(__file__).parents[2] / "build" / "test-jvm"
_EXIT_SECONDS = 300.0  # a JVM writes the archive when it exits


def broker_archive() -> Path | None:
    """Return the archive of a broker that fits this machine's Java and jars; None if there is none."""
    path = _broker_path() if any(DIRECTORY.glob("*.jsa")) else None
    return path if path and path.exists() and path.stat().st_size else None


def make_archives() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with FileLock(DIRECTORY / "lock"), ThreadPoolExecutor() as pool:
        spark = pool.submit(_make_spark_archive)
        if not _broker_path().exists():
            print("Making archives of classes for the tests' JVMs (once, a minute) ...", flush=True)
            _make_broker_archive()
        spark.result()


def _make_spark_archive() -> None:
    try:
        archive = archive_path(connector_jars())
        # An archive fits the jars of PySpark that existed when it was made.
        if not archive.is_file() or archive.stat().st_mtime < (spark_home() / "jars").stat().st_mtime:
            make_archive()
    except SetupError as error:  # for example a Java that has no archive of its own classes
        print(f"{error}: the tests do without", file=sys.stderr)


def _make_broker_archive() -> None:
    find_jars(kafka_jars(), print)
    for old in DIRECTORY.glob("*.jsa"):
        old.unlink()
    with TemporaryDirectory(dir=DIRECTORY) as directory:
        written = Path(directory, "archive")
        _use_broker(Path(directory, "work"), f"-XX:ArchiveClassesAtExit={written}")
        path = _broker_path()
        if written.exists():
            written.rename(path)
        else:  # an empty file, so that no run tries again
            path.touch()
            print("This Java made no archive for brokers: the tests do without", file=sys.stderr)


def _broker_path() -> Path:
    """Return the path of the archive; it may not exist."""
    home = spark_java_home()
    release = home / "release"
    parts = [home, int(release.stat().st_mtime) if release.exists() else "", FAST, *kafka_jars().checksums]
    return DIRECTORY / f"kafka-{hashlib.sha256(chr(10).join(map(str, parts)).encode()).hexdigest()[:16]}.jsa"


def _use_broker(directory: Path, option: str) -> None:
    """Load the classes of a broker in a JVM with this option, which then exits."""
    from streaming_app.kafka.client import StreamsGroupClient  # noqa: PLC0415 - as above
    from streaming_app.sandbox import broker as broker_module  # noqa: PLC0415
    from streaming_app.sandbox.broker import LocalBroker, SecureListeners  # noqa: PLC0415
    from streaming_app.sandbox.demo_groups import create_demo_groups  # noqa: PLC0415

    broker_module._GRACE_SECONDS = _EXIT_SECONDS
    listeners = SecureListeners(java_options=[option])
    with (
        LocalBroker(directory / "broker", secure_listeners=listeners) as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        create_demo_groups(client).close()


if __name__ == "__main__":
    make_archives()

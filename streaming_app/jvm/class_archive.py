"""Makes the archive of classes with which Spark's JVM starts faster (Java: application class data sharing, AppCDS).

Spark loads 15,000 classes before the first batch is done. A JVM does not read and verify the classes that it finds in
an archive. To make the archive, a session does what the first batches of a job do; its JVM writes the archive when it
exits. Java ignores an archive that was made by another Java, for another class path or for other jars. The start-up is
then as slow as without an archive.
"""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.jars import connector_jars
from streaming_app.jvm.java import last_line
from streaming_app.jvm.spark_jvm import archive_path
from streaming_app.jvm.spark_session import spark_session

_EXIT_SECONDS = 300.0  # the JVM writes the archive when it exits
_CONF = {"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false"}  # "true" would wait for a broker for ever
_NO_BROKER = {  # the options with which the Kafka source finds that no broker answers
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "subscribe": "none",
    "kafka.default.api.timeout.ms": "1000",
    "kafka.request.timeout.ms": "1000",
    "fetchOffset.numRetries": "1",
}


def make_archive() -> Path:
    """Make the archive, replace an older one, and return its path. Raises UserError."""
    path = archive_path(connector_jars())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix="new-") as made:
            archive, log = Path(made, "archive.jsa"), Path(made, "spark.log")
            options = [f"-XX:ArchiveClassesAtExit={archive}"]
            with spark_session(log, conf=_CONF, java_options=options, exit_seconds=_EXIT_SECONDS) as spark:
                _use(spark, Path(made))
            if not archive.is_file():
                raise SetupError(f"Java made no archive of classes: {last_line(log, 'ArchiveClassesAtExit')}")
            archive.replace(path)
    except OSError as error:
        raise SetupError(f"Cannot write {path.parent}: {reason_of(error)}") from None
    return path


def _use(spark: SparkSession, directory: Path) -> None:
    """Let one stream write two batches, and another stream look for a broker."""

    def write(batch: DataFrame, _number: int) -> None:
        counts = batch.groupBy((batch.value % 3).alias("key")).agg({"value": "max"}).sort("key").persist()
        counts.write.mode("append").parquet(str(directory / "rows"))
        counts.toArrow()
        counts.unpersist()

    with suppress(PySparkException, Py4JJavaError):
        spark.read.format("kafka").options(**_NO_BROKER).load().collect()
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    stream = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "checkpoint")).start()
    while stream.lastProgress is None or stream.lastProgress["batchId"] < 1:
        stream.awaitTermination(1)
    stream.stop()

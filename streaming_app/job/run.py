"""The job from start to end: what is checked, what is started, and how it stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import field_validator

from streaming_app.config.settings import BootstrapServer, Settings
from streaming_app.job.beginning import begin, check_same
from streaming_app.job.health import Health
from streaming_app.job.keeping import TRIES, keep_running
from streaming_app.job.lock import only_job, state_directory, wait_for_silence
from streaming_app.job.session import library_logs, spark_session
from streaming_app.job.source import client_properties, examine, read_stream
from streaming_app.job.tables import Warehouse, missing_tables
from streaming_app.serve.place import Place

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession


class JobConfig(Settings):
    """What the job is told: all that is configured, and what only its command says."""

    bootstrap_server: BootstrapServer
    once: bool = False
    reset: bool = False

    @field_validator("warehouse")
    @classmethod
    def _absolute(cls, place: Place) -> Place:
        return place.absolute()  # Spark takes a relative one for a table's name


def run(config: JobConfig, say: Callable[[str], None], stop: threading.Event | None = None) -> None:
    """Run the job until `stop` is set or a signal asks for its end; with `once`, until what is there is processed.

    `say` gets one line at a time. Raises JobError or LocalError, whose text is a line for the user.
    """
    stop = stop or threading.Event()
    home = state_directory(config.warehouse, config.state_dir)
    in_warehouse = config.warehouse.is_local and config.state_dir is None
    what = "the warehouse" if in_warehouse else "state_dir"
    with only_job(home, config.cluster, what), _stopped_by_signals(stop):
        # What is wrong with these is better known before Spark starts.
        missing_tables(config.warehouse)
        client_properties(config.bootstrap_server, config.command_config)
        if not config.warehouse.is_local:
            wait_for_silence(config.warehouse, config.cluster, say, stop)
        say("Starting Spark ...")
        log_file = home / f"{config.cluster}.spark.log"
        with library_logs(log_file), spark_session(log_file, conf=config.conf, progress=say) as spark:
            run_with(spark, config, say, stop, log_file)


def run_with(
    spark: SparkSession, config: JobConfig, say: Callable[[str], None], stop: threading.Event, log_file: Path
) -> None:
    """Run the job in a session that is there."""
    # Loaded here: these load Spark, and a job that cannot start should say so sooner.
    from streaming_app.job.beside import beside  # noqa: PLC0415
    from streaming_app.job.pipeline import Pipeline  # noqa: PLC0415
    from streaming_app.job.plugin import has_description_plugin  # noqa: PLC0415
    from streaming_app.job.progress import Progress  # noqa: PLC0415
    from streaming_app.job.topics import Topics  # noqa: PLC0415
    from streaming_app.job.upkeep import Upkeep  # noqa: PLC0415

    properties = client_properties(config.bootstrap_server, config.command_config)
    topic = examine(spark, properties, config.topic)
    warehouse = Warehouse(spark, config.warehouse, config.cluster)
    warehouse.prepare()
    checkpoint = config.warehouse / "_checkpoints" / config.cluster
    beginning = begin(warehouse, checkpoint, topic, reset=config.reset)
    size = f"{topic.partitions} partitions, {topic.offsets:,} offsets"
    say(f"{topic.name} at {config.bootstrap_server}: {size}; {beginning.said}")

    health = Health()
    progress = Progress(say, health)
    topics = Topics(properties, say)
    done_at = config.warehouse / "_jobs" / f"{config.cluster}.upkeep"
    upkeep = Upkeep(warehouse, done_at, config.retention_days, say)
    stream = read_stream(spark, properties, topic, config.max_offsets_per_trigger).writeStream
    trigger = {"availableNow": True} if config.once else {"processingTime": f"{config.trigger} seconds"}

    def look() -> None:
        check_same(warehouse.files, checkpoint, examine(spark, properties, config.topic))

    has_plugin = has_description_plugin(spark, properties)
    with beside(config, warehouse.files, health, say, has_plugin=has_plugin) as onlookers:
        pipeline = Pipeline(
            warehouse,
            config.cluster,
            topic.name,
            progress.done,
            told=beginning.told,
            topics=topics,
            upkeep=upkeep,
            onlooker=onlookers.mirror,
            dialect=config.dialect,
        )
        writer = stream.foreachBatch(pipeline).option("checkpointLocation", str(checkpoint)).trigger(**trigger)
        spark.streams.addListener(progress)
        try:
            keep_running(writer.start, look, stop, say, log_file, health=health, tries=1 if config.once else TRIES)
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # noqa: SLF001 - the lines of the last batches
        finally:
            spark.streams.removeListener(progress)
            topics.close()
        if not stop.is_set():
            health.nothing_new()
            onlookers.finish()
    say("Stopped." if stop.is_set() else "Done: everything there was is processed.")


@contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; only a program's main thread may be told by signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

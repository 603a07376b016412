"""The job from start to end: checks, construction, running, and the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.config.settings import JobConfig
from streaming_app.config.without_effect import without_effect
from streaming_app.errors import SetupError, StorageError, reason_of
from streaming_app.job.garbage import old_objects_left_out
from streaming_app.job.owner import ClusterOwner, owner_location, owning, state_directory
from streaming_app.job.stopping import STOPPED, StopRequestedError, run_until_signal
from streaming_app.jvm.spark_jvm import SparkJvm
from streaming_app.jvm.spark_session import library_logs, spark_session
from streaming_app.kafka.properties import client_properties
from streaming_app.stream.job_state import JobState
from streaming_app.tables.commit_check import ADVICE, why_unsafe
from streaming_app.tables.definitions import tables
from streaming_app.tables.fence import Fence
from streaming_app.tables.log_damage import repair_logs
from streaming_app.tables.table_creation import existing_tables
from streaming_app.tables.writer import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(config: JobConfig, report: Callable[[str], None]) -> None:
    """Run the job until a signal arrives, and then for up to `STOP_SECONDS`; with `once`, until it has read all.

    `report` is called with one line at a time. Raises JobError or SetupError, whose text is a line for the user, and
    SystemExit if the job had to be abandoned after a signal.
    """
    stop, jvm = threading.Event(), SparkJvm()
    with old_objects_left_out():
        run_until_signal(partial(_run_owned, config, report, stop, jvm), stop, report, jvm)


@contextmanager
def owned(
    config: JobConfig, report: Callable[[str], None], stop: threading.Event
) -> Iterator[tuple[ClusterOwner, Callable[[], None]]]:
    """Own the cluster until the end of the block. Also gives a function that ends the probes of a job that waited.

    Raises JobError if the warehouse is unusable, or with `once` if another job writes the cluster; ConfigError if the
    client properties cannot be read; and StopRequestedError.
    """
    own = (owner_location(config.warehouse, config.cluster), *(config.warehouse / one.name for one in tables()))
    repair_logs(own, report)
    # This is checked again with Spark; without Spark an error is found in a second.
    existing_tables(config.warehouse)
    _check_commits(config, report)
    client_properties(config.bootstrap_server, config.command_config)
    health, probes = JobState(), ExitStack()

    def wait_for(owner: str) -> None:
        if not health.status.waits_for:
            from prometheus_client import CollectorRegistry  # noqa: PLC0415 - few jobs wait

            from streaming_app.job.services import serve  # noqa: PLC0415 - as above

            try:
                serve(config, CollectorRegistry(), health, report, probes)
            except SetupError as error:  # the other job on this host uses the port
                report(str(error))
        health.note(waits_for=owner)

    with probes, owning(config, report, stop, wait_for) as owner:
        if health.status.waits_for:  # the last owner may have ended because of a power cut
            repair_logs(own, report)
        health.note(waits_for=None)
        yield owner, probes.close


def _check_commits(config: JobConfig, report: Callable[[str], None]) -> None:
    """Raise StorageError if commits to the warehouse may overwrite each other, unless the configuration allows it."""
    try:
        reason = why_unsafe(config.warehouse)
    except OSError as error:
        raise StorageError(f"Cannot write the warehouse: {reason_of(error)}: {config.warehouse}") from None
    if reason and not config.single_writer:
        raise StorageError(f"{reason}; {ADVICE}")
    if reason:
        report(f"Warning: {reason}. No second job may write it, since single_writer is true")
        if config.warehouse.is_local:
            os.environ["MOUNT_ALLOW_UNSAFE_RENAME"] = "true"  # lets delta-rs commit without hard links


def _run_owned(config: JobConfig, report: Callable[[str], None], stop: threading.Event, jvm: SparkJvm) -> None:
    def poll() -> None:
        if stop.is_set():  # a download may take minutes
            raise StopRequestedError

    with owned(config, report, stop) as (owner, end_probes):
        poll()
        report("Starting Spark ...")
        log_file = state_directory(config.warehouse, config.state_dir) / f"{config.cluster}.spark.log"
        with (
            library_logs(log_file),
            spark_session(log_file, conf=config.conf, progress=report, poll=poll, jvm=jvm) as spark,
        ):
            end_probes()
            run_with(spark, config, report, stop, log_file, owner)


def run_with(  # noqa: PLR0913, PLR0917 - each is one thing it needs
    spark: SparkSession,
    config: JobConfig,
    report: Callable[[str], None],
    stop: threading.Event,
    log_file: Path | str,
    fence: Fence | None = None,
) -> None:
    """Run the job in a Spark session; change its settings. Raises OtherOwnerError once another job has taken over."""
    # Imported here: these load Spark, and a job that cannot start should say so earlier.
    from streaming_app.job.service import Job, Services  # noqa: PLC0415
    from streaming_app.job.services import background_services, maintenance_service  # noqa: PLC0415
    from streaming_app.job.stream_query import SparkProgress  # noqa: PLC0415
    from streaming_app.job.streams import CommitsStream, GroupsStream, Shared, TopicStream  # noqa: PLC0415
    from streaming_app.job.supervisor import Supervisor  # noqa: PLC0415
    from streaming_app.kafka.client import StreamsGroupClient  # noqa: PLC0415
    from streaming_app.kafka.connection import Admin, SharedConnection  # noqa: PLC0415
    from streaming_app.kafka.offsets_topic import TIMEOUT_MS  # noqa: PLC0415

    properties = client_properties(config.bootstrap_server, config.command_config)
    writer = TableWriter(spark, config.warehouse, config.cluster, fence)
    writer.prepare(report)  # the following steps read the tables
    for one in without_effect(config):
        report(f"configuration: {one}; from 0.5 on it is refused")
    health = JobState(JobState() if config.offsets.enabled else None)
    # Two connections: a batch never waits for an answer about the partitions of all groups.
    of_streams = SharedConnection(properties, Admin, request_timeout_ms=TIMEOUT_MS)
    of_services = SharedConnection(properties, StreamsGroupClient)
    job = Job(config, of_services, health, report, fence)

    with closing(of_streams), closing(of_services), background_services(job) as services, ExitStack() as at_exit:
        shared = Shared(job, spark, of_streams, writer)
        groups = GroupsStream(shared, services)
        streams: list[TopicStream] = [groups]
        if health.offsets:
            of_offsets = replace(job, health=health.offsets, report=lambda line: report(f"offsets: {line}"))
            streams.append(CommitsStream(shared._replace(job=of_offsets), groups))
        for stream in streams:
            at_exit.enter_context(closing(stream))
        running = at_exit.enter_context(closing(Services()))
        running.start(SparkProgress(spark, streams[0].query, health, report))
        supervisors = [Supervisor(stream, log_file) for stream in streams]
        for supervisor in supervisors:
            running.start(supervisor)
        for stream in streams:
            running.start(stream.reporting())
        # The first batch of a start is not delayed; but a stream that fails for days must not prevent the maintenance.
        maintenance = maintenance_service(
            job, writer, lambda: any(stream.progress.has_ended_trigger for stream in streams), stop
        )
        if not config.once:
            running.start(maintenance)
        for supervisor in supervisors:
            supervisor.wait(stop)
        # After a complete run, evaluate the alert rules once more. After an error, the exception ends the job instead.
        if not stop.is_set():
            services.finish()
            maintenance.attempt()  # with `once`: all alerts are sent
    report(STOPPED if stop.is_set() else "Done: all available records are processed.")

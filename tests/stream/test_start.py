"""Lost tables, lost checkpoints, topics made again: the job begins where it must, and history holds nothing twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.config.settings import JobConfig
from streaming_app.errors import JobError
from streaming_app.job import supervisor
from streaming_app.job.run import run_with
from streaming_app.job.stream_query import StreamQuery
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.spark_writer import SparkWriter
from tests.offsets_topic import UNDECODABLE, appending, epoch_records
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker


@pytest.fixture
def write(broker: Broker) -> Iterator[Callable[..., int]]:
    """Appends records of group g at an epoch, and one that cannot be decoded."""
    with appending(broker.bootstrap_server) as append:
        yield lambda topic, epoch: append(topic, *epoch_records("g", epoch), UNDECODABLE)


@pytest.fixture
def read_topic(
    client: StreamsGroupClient, unique: Callable[[str], str], write: Callable[..., None], run: Callable[..., str]
) -> Callable[..., str]:
    """Creates a topic with group g at these epochs, lets the job read it, and returns its name."""

    def read(*epochs: int) -> str:
        topic = unique("offsets")
        client.create_topic(topic, 1)
        for epoch in epochs:
            write(topic, epoch)
        run(topic)
        return topic

    return read


def held(path: Path) -> tuple[int | None, int, int]:
    """The group's epoch, the number of its events, the number of records in quarantine."""
    opened = WarehouseReader(path)
    groups = opened.rows("SELECT group_epoch FROM groups")
    counts = [opened.rows(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in ("group_events", "quarantine")]
    return (groups[0]["group_epoch"] if groups else None), *counts


def test_what_is_lost_is_read_again_and_the_history_holds_nothing_twice(
    client: StreamsGroupClient, unique: Callable[[str], str], write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)
    write(topic, 2)
    assert "reading from the beginning" in run(topic)
    first = held(tmp_path)
    assert first[0] == 2

    shutil.rmtree(tmp_path / "groups")
    assert "reading from the beginning again; the history stays" in run(topic)
    assert held(tmp_path) == first

    shutil.rmtree(tmp_path / "_checkpoints")
    write(topic, 3)
    assert "again" in run(topic)
    epoch, events, quarantined = held(tmp_path)
    assert (epoch, quarantined) == (3, 2)
    assert events > first[1]

    shutil.rmtree(tmp_path / "group_events")
    assert "lost or restored since: group_events; reading from the beginning; the history stays" in run(topic)
    assert held(tmp_path) == (3, events, 2)


def test_a_topic_created_again_is_refused_until_a_reset(
    read_topic: Callable[..., str], client: StreamsGroupClient, write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    topic = read_topic(2, 3, 4)
    before = held(tmp_path)
    client.admin.delete_topics([topic])
    client.create_topic(topic, 1)
    write(topic, 2)
    with pytest.raises(JobError, match=r"deleted and created again since .* --reset"):
        run(topic)
    assert held(tmp_path) == before
    assert "another topic than before" in run(topic, reset=True)
    epoch, events, quarantined = held(tmp_path)
    assert (epoch, quarantined) == (2, before[2] + 1)
    assert events > before[1]
    assert "resuming" in run(topic)


def test_the_tables_of_another_topic_are_not_mixed_with_this_ones(
    client: StreamsGroupClient, unique: Callable[[str], str], write: Any, run: Callable[..., str]
) -> None:
    one, other = unique("one"), unique("other")
    for topic in (one, other):
        client.create_topic(topic, 1)
        write(topic, 2)
    run(one)
    with pytest.raises(JobError, match=f"This is topic {other}, and the tables are of topic {one}"):
        run(other)


def test_a_checkpoint_of_other_rows_is_not_gone_on_from(
    read_topic: Callable[..., str],
    spark: SparkSession,
    run: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = read_topic(2)
    one = held(tmp_path)
    checkpoints = tmp_path / "_checkpoints"

    shutil.copytree(checkpoints / "default", checkpoints / "other")
    assert "reading from the beginning" in run(topic, cluster="other")
    shutil.rmtree(checkpoints / "other")
    for copied in (checkpoints / "default", checkpoints / "default.topic.json"):
        (shutil.copytree if copied.is_dir() else shutil.copy)(copied, str(copied).replace("default", "other"))
    assert "reading from the beginning again; the history stays" in run(topic, cluster="other")
    counts = "SELECT cluster, count(*) AS n FROM group_events GROUP BY cluster ORDER BY cluster"
    assert WarehouseReader(tmp_path).rows(counts) == [{"cluster": name, "n": one[1]} for name in ("default", "other")]

    elsewhere = tmp_path / "elsewhere"
    SparkWriter(spark, str(elsewhere), "default").prepare()
    shutil.copytree(checkpoints, elsewhere / "_checkpoints")
    assert "reading from the beginning" in run(topic, warehouse=elsewhere)
    assert held(elsewhere) == one
    assert "resuming" in run(topic, warehouse=elsewhere)


def test_the_tables_of_another_kafka_cluster_are_not_mixed_with_this_ones(
    read_topic: Callable[..., str], run: Callable[..., str], tmp_path: Path
) -> None:
    topic = read_topic(2)
    record = tmp_path / "_checkpoints" / "default.topic.json"
    there = json.loads(record.read_text("utf-8"))
    record.write_text(json.dumps({**there, "cluster_id": "elsewhere"}), "utf-8")
    with pytest.raises(JobError, match=r"This is Kafka cluster \S+, and the tables are of cluster elsewhere\. Give"):
        run(topic)


@pytest.mark.parametrize(
    ("killed_at", "next_start"),
    [("highest_offsets", "resuming from the checkpoint"), ("delete_groups", "reading from the beginning again")],
)
def test_a_job_killed_while_it_prepares_its_start_leaves_nothing_out(
    read_topic: Callable[..., str],
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed_at: str,
    next_start: str,
) -> None:
    topic = read_topic(2)
    before = held(tmp_path)

    def killed(_self: SparkWriter, *_: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SparkWriter, killed_at, killed)
        with pytest.raises(KeyboardInterrupt):
            run(topic, reset=True)
    assert next_start in run(topic)
    assert held(tmp_path) == before


@pytest.mark.parametrize("lost", ["", "groups", "_checkpoints"], ids=lambda name: name or "--reset")
def test_a_reading_from_the_beginning_that_is_interrupted_writes_no_event_twice(
    read_topic: Callable[..., str],
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
) -> None:
    topic = read_topic(2, 3)
    before = held(tmp_path)
    if lost:
        shutil.rmtree(tmp_path / lost)
    for batches in (0, 1):  # that are finished before the failure
        with monkeypatch.context() as patched:
            _fail_after(patched, batches)
            with pytest.raises(JobError, match="The disk is gone"):
                run(topic, reset=not lost and not batches, max_offsets_per_trigger=2)
    run(topic)
    assert held(tmp_path) == before


def test_a_history_that_is_lost_before_the_first_batch_of_a_reading_from_the_beginning_is_written_again(
    read_topic: Callable[..., str],
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = read_topic(2, 3)
    before = held(tmp_path)
    with monkeypatch.context() as patched:
        _fail_after(patched, 0)
        with pytest.raises(JobError, match="The disk is gone"):
            run(topic, reset=True)
    shutil.rmtree(tmp_path / "group_events")
    assert "lost or restored since: group_events; reading from the beginning" in run(topic)
    assert held(tmp_path) == before


def _fail_after(patched: pytest.MonkeyPatch, batches: int) -> None:
    """Let the rows of groups be written so many times; then the events are written, and the rows are not."""
    done = 0

    def failing(write: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*args: object) -> None:
            nonlocal done
            done += 1
            if done > batches:
                raise OSError("The disk is gone")
            write(*args)

        return wrapped

    patched.setattr(GroupRows, "replace", failing(GroupRows.replace))


def test_a_reset_for_a_topic_created_again_that_ends_before_it_reads_leaves_out_nothing(
    read_topic: Callable[..., str],
    client: StreamsGroupClient,
    write: Any,
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = read_topic(2, 3, 4)
    before = held(tmp_path)
    client.delete_topic(topic)
    client.create_topic(topic, 1)
    write(topic, 2)

    def start(*_: object) -> None:
        raise JobError("Port 9464 is in use")

    with monkeypatch.context() as patched:
        patched.setattr(StreamQuery, "start", start)
        with pytest.raises(JobError, match="in use"):
            run(topic, reset=True)
    run(topic)
    epoch, events, quarantined = held(tmp_path)
    assert (epoch, quarantined) == (2, before[2] + 1)
    assert events > before[1]


def test_a_topic_created_again_under_a_running_job_ends_it(
    broker: Broker,
    client: StreamsGroupClient,
    spark: SparkSession,
    unique: Callable[[str], str],
    write: Any,
    tmp_path: Path,
    create_warehouse: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "_TOPIC_SECONDS", 1)
    create_warehouse(tmp_path)
    topic, lines, errors = unique("offsets"), [], []
    client.create_topic(topic, 1)
    write(topic, 2)

    def job() -> None:
        config = JobConfig(bootstrap_server=broker.bootstrap_server, warehouse=tmp_path, topic=topic)
        try:
            run_with(spark, config, lines.append, stop, tmp_path / "spark.log")
        except JobError as error:
            errors.append(str(error))

    stop = Event()
    running = Thread(target=job)
    running.start()
    try:
        assert wait_until(lambda: any(line.startswith("batch 0") for line in lines), 60)
        client.admin.delete_topics([topic])
        client.create_topic(topic, 1)
        running.join(timeout=60)
    finally:
        stop.set()
        running.join()
    assert len(errors) == 1
    assert "deleted and created again while the job ran: start it with --reset" in errors[0]
    assert held(tmp_path)[0] == 2

"""`streaming_app.run`: the job in a session that somebody else made, which stays as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

import streaming_app
from streaming_app.config.settings import JobConfig
from streaming_app.job import services
from streaming_app.job.given_session import derived_session
from streaming_app.jvm.jars import connector_jars, find_jars
from streaming_app.jvm.spark_installation import spark_java_home
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from streaming_app.tables.reader import WarehouseReader
from tests.support.container import Broker
from tests.support.offsets_topic import epoch_records
from tests.support.waiting import thread_names, wait_until

pytestmark = pytest.mark.broker

FETCHING = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
PLAIN = {
    FETCHING: "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    "fs.defaultFS": "hdfs://127.0.0.1:1/",
}
"""What a session of a user has that was made without regard to the job, and settings that would break it."""
LITTLE: dict[str, Any] = {"offsets": {"enabled": False}, "lag": {"enabled": False}}
Run = Callable[..., list[str]]


@pytest.fixture
def plain(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for name, value in PLAIN.items():
        session.conf.set(name, value)
    return session


@pytest.fixture
def run_in(plain: SparkSession, broker: Broker, empty_warehouse: Path) -> Run:
    """Run the job in the plain session, which must be as before; return the lines that it reports."""

    def run(spark: object = plain, **arguments: Any) -> list[str]:
        lines: list[str] = []
        before, active = plain.conf.getAll, type(plain).active()
        values = {"bootstrap_server": broker.bootstrap_server, "warehouse": empty_warehouse, **LITTLE, **arguments}
        try:
            streaming_app.run(spark, **{"report": lines.append, **values})  # type: ignore[arg-type]
        finally:
            assert plain.conf.getAll == before
            assert type(plain).active() is active
            assert plain.streams.active == []
        return lines

    return run


@pytest.fixture
def group(client: StreamsGroupClient, group_id: str, unique: Callable[[str], str]) -> str:
    """A group of the brokers, whose records are in the internal topic."""
    SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[unique("missing")]))).join()
    return group_id


def stored(warehouse: Path) -> set[str]:
    return {row["group_id"] for row in WarehouseReader(warehouse).rows("SELECT group_id FROM groups")}


# A session as `pyspark --jars CONNECTOR` makes it: without Delta Lake, and with no setting for the job.
BARE = """
import sys
import streaming_app
from pyspark.sql import SparkSession

bootstrap_server, warehouse, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraClassPath", jars).getOrCreate()
streaming_app.run(spark, bootstrap_server=bootstrap_server, warehouse=warehouse, once=True, report=print)
assert "delta" not in str(spark.sparkContext._conf.getAll()).lower()
"""


def test_a_session_needs_nothing_but_the_kafka_connector(group: str, broker: Broker, tmp_path: Path) -> None:
    jars = os.pathsep.join(map(str, find_jars(connector_jars())))
    arguments = [broker.bootstrap_server, str(tmp_path / "warehouse"), jars]
    environment = {**os.environ, "JAVA_HOME": str(spark_java_home())}
    ran = subprocess.run(
        [sys.executable, "-c", BARE, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    assert "Done: all available records are processed." in ran.stdout
    assert group in stored(tmp_path / "warehouse")
    rows = WarehouseReader(tmp_path / "warehouse").rows("SELECT count(*) AS n FROM group_records")
    assert rows[0]["n"] > 0


def test_a_source_that_finds_no_partition_ends_the_job_and_the_session_stays_as_it_was(
    run_in: Run, group: str, empty_warehouse: Path
) -> None:
    line = rf"finds no partition of __consumer_offsets, .*{FETCHING} must be true, and is false"
    with pytest.raises(streaming_app.JobError, match=line):
        run_in(once=True, conf={FETCHING: False})
    assert group not in stored(empty_warehouse)


def test_settings_of_the_session_are_copied_and_those_of_the_job_come_after_them(plain: SparkSession) -> None:
    plain.conf.set("spark.sql.broadcastTimeout", "777")
    plain.conf.set("fs.s3a.endpoint", "https://store")
    values = {"bootstrap_server": "a:1", "warehouse": "/w", "conf": {"spark.sql.adaptive.enabled": True}}
    with derived_session(plain, JobConfig.model_validate(values)) as session:
        found = {name: session.conf.get(name) for name in (*PLAIN, "spark.sql.broadcastTimeout", "fs.s3a.endpoint")}
    assert found == PLAIN | {
        FETCHING: "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(plain.sparkContext.defaultParallelism),
        "spark.sql.streaming.numRecentProgressUpdates": "100",
        "fs.defaultFS": "file:///",
        "spark.sql.broadcastTimeout": "777",
        "fs.s3a.endpoint": "https://store",
    }


class OfConnect:
    """As a session of Spark Connect, it is no classic session."""

    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"spark": OfConnect()}, r"does not take a .*OfConnect: Spark Connect has no JVM"),
        ({"spark": None}, r"does not take a builtins\.NoneType: pass a pyspark\.sql\.SparkSession"),
        ({"clutser": "eu"}, r"streaming_app\.run\(\): clutser: is not a known key; did you mean cluster\?"),
        ({"bootstrap_server": None}, r"bootstrap_server: must be HOST:PORT"),
        ({"conf": {"spark.sql.warehouse.dir": "/x"}}, r"conf\.spark\.sql\.warehouse\.dir cannot be set in a running"),
    ],
)
def test_what_is_wrong_is_an_error_of_one_line(run_in: Run, arguments: dict[str, Any], line: str) -> None:
    with pytest.raises(streaming_app.JobError, match=line) as raised:
        run_in(**arguments)
    assert "\n" not in str(raised.value)


def test_another_thread_stops_the_job_and_meanwhile_no_second_one_starts(
    plain: SparkSession, run_in: Run, empty_warehouse: Path, group: str
) -> None:
    stop, caught_up, lines = threading.Event(), threading.Event(), list[str]()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def on_line(line: str) -> None:
        lines.append(line)
        if line.startswith("Caught up"):
            caught_up.set()

    thread = threading.Thread(target=run_in, kwargs={"stop": stop, "report": on_line})
    thread.start()
    try:
        assert caught_up.wait(300), lines
        started = {"batches of groups", "groups", "maintenance", "progress of Spark"}
        assert wait_until(lambda: started <= set(thread_names()))  # some start after the first batch
        assert {number: signal.getsignal(number) for number in handlers} == handlers
        with pytest.raises(streaming_app.JobError, match="Another job already writes cluster 'default'"):
            run_in(once=True)
    finally:
        stop.set()
        thread.join()
    assert lines[-1] == "Stopped."
    assert group in stored(empty_warehouse)
    assert plain.streams.active == []


def test_an_interrupt_stops_the_job_before_it_is_raised(run_in: Run, group: str, empty_warehouse: Path) -> None:
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line.startswith("Caught up"):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_in(report=on_line)
    assert lines[-1] == "Stopped."
    assert group in stored(empty_warehouse)


@pytest.mark.usefixtures("group")
def test_a_job_that_has_read_all_ends_while_it_maintains_its_tables(
    run_in: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, noticed, lines = threading.Event(), list[bool](), list[str]()

    def maintain(_tables: object, is_stopping: Callable[[], bool], _report: object) -> None:
        stop.set()
        noticed.append(wait_until(is_stopping))

    monkeypatch.setattr(services, "maintain_all", maintain)
    run_in(once=True, stop=stop, report=lines.append)
    assert noticed
    assert all(noticed)
    assert lines[-1] == "Stopped."


def test_read_committed_in_the_client_properties_does_not_stop_the_reading_at_an_open_transaction(
    run_in: Run, broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    for key, value in epoch_records("g", 2):
        producer.send(topic, key=key, value=value).get(300)
    file = tmp_path / "client.properties"
    file.write_text("isolation.level=read_committed\n", "utf-8")
    try:
        lines = run_in(topic=topic, once=True, command_config=file)
    finally:
        producer.abort_transaction()
        producer.close()
    assert any("2 records seen" in line for line in lines)

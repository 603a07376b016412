"""The job on a Spark cluster of two workers, as in deploy/spark, with enough groups to be folded by the workers.

Run by `make check-deploy`, not by `make test`: it takes most of a minute.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
import yaml
from kafka import KafkaProducer

from streaming_app.jvm.jars import connector_jars, find_jars
from streaming_app.jvm.spark_installation import spark_java_home
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.child_process import HOST, Process, reserve_port
from streaming_app.tables.reader import WarehouseReader
from tests.deploy.live_group import live_group
from tests.support.container import Broker
from tests.support.http_client import accepts_connections
from tests.support.job_runner import run_job
from tests.support.offsets_topic import epoch_records
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

GROUPS = 2_500  # more than the job folds in the driver
SPARK = Path(__file__).parents[2] / "deploy" / "spark"
_EXECUTOR_MEMORY = "640m"
_START_SECONDS = 60.0


@pytest.fixture
def topic(broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str]) -> str:
    """A topic with the records of many groups."""
    name = unique("offsets")
    client.create_topic(name, 4)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_server, linger_ms=5)
    for number in range(GROUPS):
        for key, value in epoch_records(f"g-{number}", 2):
            producer.send(name, key=key, value=value, partition=number % 4)
    producer.close()
    return name


@pytest.fixture
def conf(tmp_path: Path) -> Iterator[list[str]]:
    """The options of a job on a cluster, whose events are logged."""
    log = tmp_path / "log"
    log.mkdir()
    with spark_cluster(tmp_path, workers=2) as cluster:
        settings = {
            **cluster,
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        yield [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]


def test_executors_of_a_cluster_read_fold_and_write(
    broker: Broker, topic: str, conf: list[str], tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    result = run_job(broker.bootstrap_server, warehouse, "--topic", topic, *conf)
    assert result.returncode == 0, result.stderr
    assert_both_executors_wrote(warehouse, tmp_path / "log")

    alone = tmp_path / "alone"
    result = run_job(broker.bootstrap_server, alone, "--topic", topic)
    assert result.returncode == 0, result.stderr
    for name in ("groups", "group_events", "topologies"):
        assert rows_of(warehouse, name) == rows_of(alone, name)


def test_an_application_of_spark_submit_runs_the_job_in_its_session(
    broker: Broker, topic: str, conf: list[str], tmp_path: Path
) -> None:
    """The session has nothing but Delta Lake and the jars; the second run reads the brokers' internal topic."""
    warehouse, config = tmp_path / "warehouse", tmp_path / "config.yaml"
    values = {"bootstrap_server": broker.bootstrap_server, "warehouse": str(warehouse), "lag": {"enabled": False}}
    config.write_text(yaml.safe_dump({**values, "topic": topic}), "utf-8")
    result = spark_submit(conf, config, "--once")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("Done: all available records are processed.\n")
    assert_both_executors_wrote(warehouse, tmp_path / "log")

    with live_group(broker.bootstrap_server, "in-the-brokers"):
        config.write_text(yaml.safe_dump({**values, "cluster": "internal"}), "utf-8")
        result = spark_submit(conf, config, "--once")
    assert result.returncode == 0, result.stderr
    stored = WarehouseReader(warehouse).rows("SELECT group_id, state FROM groups WHERE cluster = 'internal'")
    assert {"group_id": "in-the-brokers", "state": "Stable"} in stored


def rows_of(warehouse: Path, name: str) -> list[str]:
    """Return the rows of a table as texts, in order."""
    return sorted(map(str, WarehouseReader(warehouse).rows(f"SELECT * FROM {name}")))


_COMMAND = (SPARK / "README.md").read_text("utf-8").split("spark-submit --master")[1].split("deploy/spark/job.py")[0]
SETTINGS = re.findall(r"--conf (\S+)", _COMMAND)
"""The settings of the README's command of spark-submit, each with its value."""


def spark_submit(conf: list[str], config: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the application of deploy/spark as its README says."""
    found = ",".join(map(str, find_jars(connector_jars())))
    settings = [part for setting in SETTINGS for part in ("--conf", setting)]
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(spark_java_home()),
    }
    command = [home / "bin" / "spark-submit", "--jars", found, *settings, *conf, SPARK / "job.py", config, *options]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, env=environment, timeout=600
    )


def assert_both_executors_wrote(warehouse: Path, log: Path) -> None:
    stored = WarehouseReader(warehouse).rows("SELECT count(*) AS n, min(assignment_epoch) AS epoch FROM groups")
    assert stored == [{"n": GROUPS, "epoch": 2}]
    events = [json.loads(line) for file in log.iterdir() for line in file.read_text("utf-8").splitlines()]
    executors = [event["Task Info"]["Executor ID"] for event in events if event["Event"] == "SparkListenerTaskEnd"]
    assert set(executors) == {"0", "1"}


@contextmanager
def spark_cluster(directory: Path, workers: int) -> Iterator[dict[str, str]]:
    """Run the cluster with the logs of its daemons and executors in `directory`; gives the settings of its clients."""
    with reserve_port() as listener:
        port = listener.getsockname()[1]
    master = f"spark://{HOST}:{port}"
    with ExitStack() as at_exit:
        daemon = _start_daemon(directory, "master", "master.Master", "--port", str(port))
        at_exit.callback(daemon.stop)
        wait_until(lambda: accepts_connections(port), _START_SECONDS)
        for number in range(workers):
            name = f"worker-{number}"
            options = ("--cores", "1", "--memory", _EXECUTOR_MEMORY, "--work-dir", str(directory / name), master)
            at_exit.callback(_start_daemon(directory, name, "worker.Worker", *options).stop)
        log = directory / "master.log"
        wait_until(lambda: log.read_text("utf-8").count("Registering worker") == workers, _START_SECONDS)
        yield {
            "spark.master": master,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.executor.memory": _EXECUTOR_MEMORY,
        }


def _start_daemon(directory: Path, name: str, main_class: str, *options: str) -> Process:
    spark = Path(pyspark.__file__).parent
    environment = (
        f"SPARK_HOME={spark}",
        f"SPARK_LOCAL_IP={HOST}",
        f"JAVA_HOME={spark_java_home()}",
        "SPARK_DAEMON_MEMORY=256m",
        "SPARK_DAEMON_JAVA_OPTS=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    )
    address = ("--host", HOST, "--webui-port", "0")
    command = ["env", *environment, spark / "bin" / "spark-class", f"org.apache.spark.deploy.{main_class}"]
    return Process([*command, *address, *options], directory / f"{name}.log")

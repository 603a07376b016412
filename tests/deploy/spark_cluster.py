"""A Spark standalone cluster on loopback, from the classes in PySpark: a master, and workers with one core each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from streaming_app.jvm.spark_installation import spark_java_home
from streaming_app.sandbox.process import HOST, Process, reserve_port
from tests.support.http_client import accepts_connections
from tests.support.waiting import wait_until

_EXECUTOR_MEMORY = "640m"
_START_SECONDS = 60.0


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

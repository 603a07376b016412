"""Stores on loopback: HDFS of one node, from Hadoop's own test jar, and an S3 over HTTP, by moto."""

from __future__ import annotations

import os
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming_app.local.answering import HOST, reserve
from streaming_app.local.jars import SPARK_EXCLUSIONS, resolve
from streaming_app.local.java import find_java
from streaming_app.local.process import Process
from tests.waiting import wait_until

_START_SECONDS = 60.0
_MINI_CLUSTER = "org.apache.hadoop:hadoop-client-minicluster:3.4.1"
_S3A = "org.apache.hadoop:hadoop-aws:3.4.1"
# Of the bundle that hadoop-aws asks for, 600 MB, what it uses; its version has no transfer manager of its own there.
_SDK = tuple(
    f"software.amazon.awssdk:{name}:2.25.53"
    for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
)
_SPARK_HAS = ("io.netty:*", "commons-logging:*", "commons-codec:*")
BUCKET = "warehouses"
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "anyone",
    "AWS_SECRET_ACCESS_KEY": "anything",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@contextmanager
def hdfs(directory: Path) -> Iterator[str]:
    """Run HDFS with its data in `directory`; its URI."""
    port = _free_port()
    jars = resolve(_MINI_CLUSTER, progress=print)
    data = f"hdfs.minidfs.basedir={directory / 'data'}"
    manager = ("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-nnport", str(port))
    command = [find_java(), "-cp", os.pathsep.join(map(str, jars)), *manager, "-httpport", "0", "-D", data]
    details = directory / "details.json"  # written when it is up
    running = Process([*command, "-writeDetails", details], directory / "hdfs.log")
    try:
        wait_until(details.exists, _START_SECONDS)
        yield f"hdfs://localhost:{port}"
    finally:
        running.stop()


@contextmanager
def s3(directory: Path, moto_server: str) -> Iterator[str]:
    """Run S3 with one bucket; the URL of its endpoint."""
    port = _free_port()
    running = Process([moto_server, "--host", HOST, "--port", str(port)], directory / "s3.log")
    try:
        wait_until(lambda: _answers(port), _START_SECONDS)
        made = urllib.request.Request(f"http://{HOST}:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(made, timeout=10).close()  # noqa: S310 - http
        yield f"http://{HOST}:{port}"
    finally:
        running.stop()


def s3a_settings(endpoint: str) -> dict[str, str]:
    """What Spark must be told for it."""
    sdk = resolve(*_SDK, exclude=(*SPARK_EXCLUSIONS, *_SPARK_HAS), progress=print)
    jars = [*resolve(_S3A, exclude=("software.amazon.awssdk:bundle",), progress=print), *sdk]
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": S3_ENVIRONMENT["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def _free_port() -> int:
    with reserve() as listener:
        port: int = listener.getsockname()[1]
    return port


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True

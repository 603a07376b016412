"""Object stores on loopback: HDFS with one node, from Hadoop's test jar; S3, from moto; Azure's, from Azurite.

There is none for Google: fake-gcs-server rejects the PUT requests of delta-rs ("invalid uploadType").
"""

import base64
import hashlib
import hmac
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from streaming_app.jvm.java import find_java
from streaming_app.sandbox.child_process import HOST, Process, reserve_port
from tests.support.http_client import accepts_connections
from tests.support.ivy import SPARK_EXCLUSIONS, resolve
from tests.support.waiting import wait_until

_START_SECONDS = 60.0
_MINI_CLUSTER = "org.apache.hadoop:hadoop-client-minicluster:3.5.0"
_S3A = "org.apache.hadoop:hadoop-aws:3.5.0"
# The modules that hadoop-aws uses, instead of the SDK's bundle of 600 MB. Their version is newer than the one of
# hadoop-aws, in which the transfer manager is not a separate module.
_SDK = tuple(
    f"software.amazon.awssdk:{name}:2.35.4"
    for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
)
_IN_SPARK = ("io.netty:*", "commons-logging:*", "commons-codec:*")
BUCKET = "warehouses"
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "anyone",
    "AWS_SECRET_ACCESS_KEY": "anything",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's own
AZURE_WAREHOUSE = f"abfss://{BUCKET}@{_AZURE_ACCOUNT}.dfs.core.windows.net/a"


@contextmanager
def hdfs(directory: Path) -> Iterator[str]:
    """Run HDFS with its data in `directory`; give its URI."""
    port = _free_port()
    jars = resolve(_MINI_CLUSTER)
    data = f"hdfs.minidfs.basedir={directory / 'data'}"
    manager = ("org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1", "-nnport", str(port))
    command = [find_java(), "-cp", os.pathsep.join(map(str, jars)), *manager, "-httpport", "0", "-D", data]
    details = directory / "details.json"  # HDFS writes it once it is up
    process = Process([*command, "-writeDetails", details], directory / "hdfs.log")
    try:
        wait_until(details.exists, _START_SECONDS)
        yield f"hdfs://localhost:{port}"
    finally:
        process.stop()


@contextmanager
def s3(directory: Path, moto_server: str) -> Iterator[str]:
    """Run S3 with one bucket; give the URL of its endpoint."""
    port = _free_port()
    process = Process([moto_server, "--host", HOST, "--port", str(port)], directory / "s3.log")
    try:
        wait_until(lambda: accepts_connections(port), _START_SECONDS)
        create_bucket = urllib.request.Request(f"http://{HOST}:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(create_bucket, timeout=60).close()  # noqa: S310 - http
        yield f"http://{HOST}:{port}"
    finally:
        process.stop()


@contextmanager
def azure(directory: Path, azurite: str) -> Iterator[dict[str, str]]:
    """Run Azure's blob service with one container; give the environment with which delta-rs finds it."""
    port = _free_port()
    options = ("--silent", "--location", directory / "azurite", "--blobHost", HOST, "--blobPort", str(port))
    process = Process([azurite, *options, "--skipApiVersionCheck", "--disableTelemetry"], directory / "azurite.log")
    server = f"http://{HOST}:{port}"
    try:
        wait_until(lambda: accepts_connections(port), _START_SECONDS)
        _create_container(f"{server}/{_AZURE_ACCOUNT}")
        # As an emulator: it cannot list from a name on, so delta-rs itself skips the names before it.
        yield {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": server}
    finally:
        process.stop()


def _create_container(endpoint: str) -> None:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    named = "\n".join(f"{name}:{value}" for name, value in headers.items())
    signed = "PUT" + 12 * "\n" + f"{named}\n/{_AZURE_ACCOUNT}/{_AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    digest = hmac.digest(base64.b64decode(_AZURE_KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {_AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"{endpoint}/{BUCKET}?restype=container"
    request = urllib.request.Request(url, method="PUT", headers=headers)  # noqa: S310 - http
    urllib.request.urlopen(request, timeout=60).close()  # noqa: S310 - http


def s3a_settings(endpoint: str) -> dict[str, str]:
    sdk = resolve(*_SDK, exclude=(*SPARK_EXCLUSIONS, *_IN_SPARK))
    jars = [*resolve(_S3A, exclude=("software.amazon.awssdk:bundle",)), *sdk]
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": S3_ENVIRONMENT["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def _free_port() -> int:
    with reserve_port() as listener:
        port: int = listener.getsockname()[1]
    return port

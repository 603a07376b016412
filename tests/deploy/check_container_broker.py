"""Tests with a broker in a container (STREAMS_GROUPS_BROKER=docker), for `make check-deploy`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import BROKER_VARIABLE, ContainerBroker
from tests.deploy import base_images
from tests.deploy.docker_engine import ROOT, Engine

KAFKA = f"apache/kafka:{KAFKA_VERSION}"
SELECTION = ["tests/kafka/test_client.py", "tests/sandbox/test_member.py"]


@pytest.fixture
def variables(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What testcontainers needs: the engine has Kafka's image, and no image that ends containers after a crash."""
    try:
        base_images.provide(engine, KAFKA)
    except base_images.ImageUnavailableError as error:
        pytest.skip(str(error))
    changed = {BROKER_VARIABLE: "docker", "TESTCONTAINERS_RYUK_DISABLED": "true"}
    if engine.host:
        changed["DOCKER_HOST"] = engine.host
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    return engine.environment | changed


@pytest.mark.usefixtures("variables")
def test_a_broker_in_a_container_keeps_its_data_and_port_when_it_is_restarted(tmp_path: Path) -> None:
    # In a process of its own: docker-py leaves its sockets to the garbage collector.
    program = f"""
from pathlib import Path
from {StreamsGroupClient.__module__} import StreamsGroupClient
from {ContainerBroker.__module__} import ContainerBroker
with ContainerBroker(Path({str(tmp_path)!r}), properties={{"offsets.topic.num.partitions": "3"}}) as broker:
    before = broker.bootstrap_server
    with StreamsGroupClient(before) as client:
        client.create_topic("kept", 2)
    broker.restart()
    assert broker.bootstrap_server == before
    with StreamsGroupClient(before) as client:
        assert client.end_offsets("kept") == {{0: 0, 1: 0}}
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Kafka Server started" in (tmp_path / "broker.log").read_text("utf-8", "replace")


def test_tests_pass_with_a_broker_in_a_container(
    engine: Engine, variables: dict[str, str], report: Callable[[str], None]
) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTION]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=variables)
    assert result.returncode == 0, result.stdout[-6000:]
    source = "made from the jars" if base_images.is_stand_in(engine, KAFKA) else "pulled"
    report(f"with a broker in a container ({KAFKA}, {source}): {result.stdout.splitlines()[-1]}")

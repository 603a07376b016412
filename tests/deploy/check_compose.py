"""deploy/compose.yaml started, for `make check-deploy`: all services, without Grafana where it cannot be pulled."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.deploy import base_images
from tests.deploy.docker_engine import ROOT, Engine
from tests.deploy.live_group import live_group
from tests.support.http_client import answers
from tests.support.waiting import wait_until

FILE = ROOT / "deploy" / "compose.yaml"
TEXT = FILE.read_text("utf-8")
SERVICES = yaml.safe_load(TEXT)["services"]
PROJECT = "streams-groups-check"
RULES = sum(
    len(group["rules"])
    for file in (ROOT / "deploy" / "prometheus").glob("*.rules.yml")
    for group in yaml.safe_load(file.read_text("utf-8"))["groups"]
)
READY_SECONDS = 400
PROMETHEUS = "http://127.0.0.1:9090"


@pytest.fixture
def compose(engine: Engine, image: str, report: Callable[[str], None]) -> Iterator[Callable[..., str]]:
    """`compose("ps")` runs a command of Docker Compose; all services that can be had run, and are removed after."""
    command = _command(engine)
    # Compose 1, which Debian has, does not know the key `name`.
    text = "".join(line for line in TEXT.splitlines(keepends=True) if not line.startswith("name:"))
    options = ["--project-directory", str(FILE.parent), "--project-name", PROJECT, "--file", "-"]

    def run(*arguments: str) -> str:
        result = subprocess.run(
            [*command, *options, *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_SECONDS,
            cwd=FILE.parent,  # Compose 1 takes relative paths of a file on stdin from there
            env=engine.environment,
        )
        assert result.returncode == 0, result.stderr[-4000:]
        return result.stdout

    missing = {
        name: reason
        for name, service in SERVICES.items()
        if service["image"] != image and (reason := base_images.reason_without(engine, service["image"]))
    }
    for name, reason in missing.items():
        report(f"compose: {name} is left out: {reason}")
    if missing.keys() - {"grafana"}:
        pytest.skip("services are missing")
    available = [name for name in SERVICES if name not in missing]
    try:
        run("up", "--detach", "--no-build", *available)
        yield run
    finally:
        run("down", "--volumes", "--timeout", "20")


def _command(engine: Engine) -> list[str]:
    if engine.try_run("compose", "version").returncode == 0:
        return [engine.client, "compose"]
    standalone = shutil.which("docker-compose")
    if not standalone:
        pytest.skip("Docker Compose is not installed")
    return [standalone]


def test_the_services_work_together(compose: Callable[..., str], report: Callable[[str], None]) -> None:
    began = time.monotonic()
    with live_group("localhost:9092", "payments"):
        assert wait_until(lambda: answers(f"{PROMETHEUS}/-/ready"), READY_SECONDS, interval=1)
        query = 'streams_group_state{group="payments",state="Stable"}'
        assert wait_until(lambda: _query(query) == ["1"], READY_SECONDS, interval=1)
        report(f"compose: a group is in Prometheus {time.monotonic() - began:.0f} s after it was created")
        assert _query('up{job="streams-groups"}') == ["1"]
        assert wait_until(lambda: {rule["health"] for rule in _rules()} == {"ok"}, READY_SECONDS, interval=1)
        assert len(_rules()) == RULES
        listed = compose("exec", "-T", "streams-groups", "streams-groups", "list", "--state").split()
        assert listed == ["GROUP", "STATE", "payments", "Stable"]
    assert "__consumer_offsets-0" in compose("exec", "-T", "kafka", "ls", "/var/lib/kafka/data").split()
    assert "failed " not in compose("logs", "streams-groups")


def _get(path: str) -> Any:
    url = f"{PROMETHEUS}/api/v1/{path}"
    with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310 - http on loopback
        return json.load(response)["data"]


def _query(promql: str) -> list[str]:
    return [one["value"][1] for one in _get(f"query?query={urllib.parse.quote(promql)}")["result"]]


def _rules() -> list[dict[str, Any]]:
    return [rule for group in _get("rules")["groups"] for rule in group["rules"]]

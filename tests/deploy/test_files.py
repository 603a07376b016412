"""What of deploy/ can be checked without its tools; the rest is for `make check-deploy`."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming_app.config.settings import Settings
from streaming_app.job.keeping import _FINISH_SECONDS
from streaming_app.local.jars import KAFKA_VERSION
from streaming_app.local.java import NEWEST, OLDEST

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "charts" / "streams-groups"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
UNIT = (DEPLOY / "systemd" / "streams-groups.service").read_text("utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
METRICS_PORT = 9464


def test_all_say_the_version_of_the_package() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    told = {chart["version"], chart["appVersion"], COMPOSE["services"]["streams-groups"]["image"].split(":")[1]}
    told |= set(re.findall(r"^ARG VERSION=(.+)$|-t streams-groups:(\S+)", DOCKERFILE, re.MULTILINE)[0]) - {""}
    assert told == {version[1]}


def test_the_image_has_a_java_and_a_python_that_work_and_does_not_run_as_root() -> None:
    java = re.search(r"JAVA_IMAGE=eclipse-temurin:(\d+)\.", DOCKERFILE)
    assert java
    assert OLDEST <= int(java[1]) <= NEWEST
    assert re.search(r"PYTHON_IMAGE=python:3\.11\.\d+-slim", DOCKERFILE)
    users = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    pod = VALUES["podSecurityContext"]
    assert users == [(str(pod["runAsUser"]), str(pod["runAsGroup"]))]


def test_what_the_image_copies_is_there_and_let_through() -> None:
    let_through = set((ROOT / ".dockerignore").read_text("utf-8").splitlines())
    lines = [line.split() for line in DOCKERFILE.splitlines() if line.startswith("COPY ") and "--from" not in line]
    copied = [words[1:-1] for words in lines]
    for name in (name for names in copied for name in names if not name.startswith("--")):
        assert (ROOT / name).exists()
        assert {f"!{name}", f"!{Path(name).parent}"} & let_through, name
    for script in (DEPLOY / "image").glob("*.sh"):
        assert script.stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize("path", ["image/config.yaml", "streams-groups.example.yaml"])
def test_configurations_hold_only_keys_that_the_job_knows(path: str) -> None:
    Settings.model_validate(yaml.safe_load((DEPLOY / path).read_text("utf-8")))


def test_the_same_port_is_meant_everywhere() -> None:
    image = yaml.safe_load((DEPLOY / "image" / "config.yaml").read_text("utf-8"))
    assert image["metrics"]["listen"] == f"0.0.0.0:{METRICS_PORT}"
    assert f"EXPOSE {METRICS_PORT}\n" in DOCKERFILE
    assert f"http://127.0.0.1:{METRICS_PORT}/health" in DOCKERFILE
    assert VALUES["metrics"]["port"] == METRICS_PORT
    scraped = yaml.safe_load((DEPLOY / "compose" / "prometheus.yaml").read_text("utf-8"))["scrape_configs"]
    assert [job["static_configs"][0]["targets"] for job in scraped] == [[f"streams-groups:{METRICS_PORT}"]]


def test_all_give_the_batch_in_flight_the_time_that_it_may_take() -> None:
    seconds = [
        VALUES["terminationGracePeriodSeconds"],
        int(COMPOSE["services"]["streams-groups"]["stop_grace_period"].removesuffix("s")),
        int(re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[0]),
    ]
    assert all(each >= _FINISH_SECONDS + 20 for each in seconds), seconds


def test_compose_runs_the_broker_that_the_tests_run_and_mounts_what_is_there() -> None:
    assert COMPOSE["services"]["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    mounts = [mount for service in COMPOSE["services"].values() for mount in service.get("volumes", [])]
    for source in (mount.split(":")[0] for mount in mounts):
        assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), source
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_schema_of_the_charts_values_knows_exactly_the_values_there_are() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert sorted(_unknown(VALUES, schema, "")) == []
    assert set(schema["properties"]) - {"global"} == set(VALUES)


def _unknown(values: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in values.items():
        known = schema.get("properties", {}).get(name)
        if known is None and schema.get("additionalProperties") is False:
            yield path + name
        elif isinstance(value, dict) and known:
            yield from _unknown(value, known, f"{path}{name}.")


def test_every_value_of_the_chart_is_used() -> None:
    templates = "".join(file.read_text("utf-8") for file in (CHART / "templates").iterdir())
    assert [name for name in VALUES if f".Values.{name}" not in templates] == []


@pytest.mark.parametrize("folder", ["prometheus", "grafana"])
def test_the_chart_carries_the_same_rules_and_dashboard(folder: str) -> None:
    suffix = {"prometheus": "*.rules.yml", "grafana": "*.json"}[folder]
    originals = sorted((DEPLOY / folder).glob(suffix))
    assert originals
    for original in originals:
        assert (CHART / "files" / original.name).read_text("utf-8") == original.read_text("utf-8")

"""The files in deploy/, checked by tools for their formats, for `make check-deploy`. A missing tool is skipped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.job_runner import streams_groups
from tests.support.tools import deploy_tool

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "charts" / "streams-groups"
KUBERNETES = "1.37.0"
# The oldest that Chart.yaml allows, and the last three releases for which kubernetes-validate has schemas.
KUBERNETES_VERSIONS = ("1.25", "1.35", "1.36", "1.37")
OPERATORS = {"ServiceMonitor", "PrometheusRule"}  # kinds of the Prometheus Operator

_REQUIRED = "config.bootstrap_server=kafka:9092"
VARIANTS = {
    "plain": ["--set", _REQUIRED],
    "everything": [
        "--set",
        f"{_REQUIRED},serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true,priorityClassName=high,"
        "imagePullSecrets[0].name=registry,nodeSelector.disk=ssd,tolerations[0].operator=Exists,podLabels.team=a,"
        "podAnnotations.team=a,env[0].name=STREAMS_GROUPS_CLUSTER,env[0].value=main,envFrom[0].secretRef.name=sinks,"
        "serviceAccount.annotations.role=a,service.annotations.a=b,warehouse.persistence.storageClassName=fast",
        "--set-string",
        r"secrets.files.client\.properties=security.protocol=SSL",
    ],
    "executors": ["--set", f"{_REQUIRED},executors.enabled=true,warehouse.persistence.accessModes[0]=ReadWriteMany"],
    "object store": ["--set", f"{_REQUIRED},warehouse.persistence.enabled=false,config.warehouse=/mnt/other"],
    "existing": ["--set", f"{_REQUIRED},secrets.existingSecret=mine,warehouse.persistence.existingClaim=mine"],
}

VARIANTS |= {
    file.name: ["--values", str(file), "--set", _REQUIRED] for file in sorted((CHART.parent / "examples").iterdir())
}


def _run(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)


def test_hadolint_finds_no_problem_in_the_dockerfile() -> None:
    result = _run(deploy_tool("hadolint"), DEPLOY / "Dockerfile")
    assert result.returncode == 0, result.stdout


def test_helm_lints_the_chart() -> None:
    result = _run(deploy_tool("helm"), "lint", "--strict", CHART, *VARIANTS["everything"])
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_rendered_chart_is_valid_for_kubernetes_and_for_the_job(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "key")
    homes = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), str(tmp_path))
    options = ["--kube-version", KUBERNETES, *VARIANTS[variant]]
    result = _run(deploy_tool("helm"), "template", "release", CHART, *options, **homes)
    assert result.returncode == 0, result.stderr
    documents = [document for document in yaml.safe_load_all(result.stdout) if document]
    kubernetes_file = tmp_path / "kubernetes.yaml"
    kubernetes_file.write_text(yaml.safe_dump_all(one for one in documents if one["kind"] not in OPERATORS), "utf-8")
    for version in KUBERNETES_VERSIONS:
        validation = _run(deploy_tool("kubernetes-validate"), "--strict", "-k", version, kubernetes_file)
        assert validation.returncode == 0, validation.stdout + validation.stderr

    file = tmp_path / "config.yaml"
    maps = [one for one in documents if one["kind"] == "ConfigMap" and "config.yaml" in one["data"]]
    file.write_text(maps[0]["data"]["config.yaml"], "utf-8")
    check = streams_groups("check", "--show-config", "--config", file)
    assert check.returncode == 0, check.stderr


def test_compose_accepts_its_file() -> None:
    result = _run(deploy_tool("compose-spec"), DEPLOY / "compose.yaml")
    assert result.returncode == 0, result.stderr


@pytest.fixture(params=["streams-groups", "streams-groups-web"])
def unit(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A unit, with a command that exists on this machine."""
    text = (DEPLOY / "systemd" / f"{request.param}.service").read_text("utf-8")
    copy = tmp_path / f"{request.param}.service"
    copy.write_text(text.replace("/opt/streams-groups/bin/streams-groups", sys.executable), "utf-8")
    return copy


def test_systemd_accepts_the_unit(unit: Path) -> None:
    result = _run(deploy_tool("systemd-analyze"), "verify", "--man=no", unit)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_unit_exposes_no_more_than_the_documents_say(unit: Path) -> None:
    # The threshold is ten times the exposure level, 0.0 (safe) to 10.0.
    result = _run(deploy_tool("systemd-analyze"), "security", "--offline=true", "--no-pager", "--threshold=17", unit)
    assert result.returncode == 0, result.stdout
    score = re.findall(r"Overall exposure level for \S+: ([0-9.]+) ", result.stdout)
    assert f"`systemd-analyze security`: {score[0]}" in (DEPLOY / "README.md").read_text("utf-8")

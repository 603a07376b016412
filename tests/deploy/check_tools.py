"""deploy/ by the tools of its formats, for `make check-deploy`, which installs them. What has no tool is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.job.running import streams_groups

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "charts" / "streams-groups"
TOOLS = ROOT / "build" / "deploy-tools" / "bin"
KUBERNETES = "1.32.0"
OPERATORS = {"ServiceMonitor", "PrometheusRule"}  # kinds that are not Kubernetes' own

_NEEDED = "config.bootstrap_server=kafka:9092"
VARIANTS = {
    "plain": ["--set", _NEEDED],
    "everything": [
        "--set",
        f"{_NEEDED},serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true,priorityClassName=high,"
        "imagePullSecrets[0].name=registry,nodeSelector.disk=ssd,tolerations[0].operator=Exists,podLabels.team=a,"
        "podAnnotations.team=a,env[0].name=STREAMS_GROUPS_CLUSTER,env[0].value=main,envFrom[0].secretRef.name=sinks,"
        "serviceAccount.annotations.role=a,service.annotations.a=b,warehouse.persistence.storageClassName=fast",
        "--set-string",
        r"secrets.files.client\.properties=security.protocol=SSL",
    ],
    "executors": ["--set", f"{_NEEDED},executors.enabled=true,warehouse.persistence.accessModes[0]=ReadWriteMany"],
    "object store": ["--set", f"{_NEEDED},warehouse.persistence.enabled=false,config.warehouse=/mnt/other"],
    "existing": ["--set", f"{_NEEDED},secrets.existingSecret=mine,warehouse.persistence.existingClaim=mine"],
}


def _tool(name: str) -> str:
    found = shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
    if not found:
        pytest.skip(f"there is no {name} here")
    return found


def _run(*command: object, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)


def _rendered(variant: str, home: Path) -> subprocess.CompletedProcess[str]:
    where = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), str(home))
    return _run(_tool("helm"), "template", "release", CHART, "--kube-version", KUBERNETES, *VARIANTS[variant], **where)


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    ran = _run(_tool("hadolint"), DEPLOY / "Dockerfile")
    assert ran.returncode == 0, ran.stdout


def test_helm_lints_the_chart() -> None:
    ran = _run(_tool("helm"), "lint", "--strict", CHART, *VARIANTS["everything"])
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_chart_renders_is_valid_for_kubernetes_and_for_the_job(variant: str, tmp_path: Path) -> None:
    ran = _rendered(variant, tmp_path)
    assert ran.returncode == 0, ran.stderr
    documents = [document for document in yaml.safe_load_all(ran.stdout) if document]
    own = tmp_path / "own.yaml"
    own.write_text(yaml.safe_dump_all(one for one in documents if one["kind"] not in OPERATORS), "utf-8")
    for version in ("1.25", "1.32", "1.37"):
        validated = _run(_tool("kubernetes-validate"), "--strict", "-k", version, own)
        assert validated.returncode == 0, validated.stdout + validated.stderr

    file = tmp_path / "config.yaml"
    maps = [one for one in documents if one["kind"] == "ConfigMap" and "config.yaml" in one["data"]]
    file.write_text(maps[0]["data"]["config.yaml"], "utf-8")
    checked = streams_groups("config", "--check", "--config", file)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("cluster=x", "config.bootstrap_server is needed"),
        (f"{_NEEDED},warehouse.persistence.enabled=false", "config.warehouse"),
        (f"{_NEEDED},persistance.enabled=false", "persistance"),
        (f"{_NEEDED},service.type=Any", "/service/type"),
    ],
)
def test_values_that_cannot_work_are_refused(values: str, said: str) -> None:
    values = values.replace("cluster=x", "config.cluster=x")
    ran = _run(_tool("helm"), "template", "release", CHART, "--kube-version", KUBERNETES, "--set", values)
    assert ran.returncode != 0
    assert said in ran.stderr


def test_compose_takes_its_file() -> None:
    ran = _run(_tool("compose-spec"), DEPLOY / "compose.yaml")
    assert ran.returncode == 0, ran.stderr


def test_systemd_takes_its_unit(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "streams-groups.service").read_text("utf-8")
    copy = tmp_path / "streams-groups.service"
    copy.write_text(unit.replace("/opt/streams-groups/bin/streams-groups", sys.executable), "utf-8")
    ran = _run(_tool("systemd-analyze"), "verify", "--man=no", copy)
    assert (ran.returncode, ran.stderr) == (0, "")

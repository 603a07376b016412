"""The files in deploy/, as far as they can be checked without tools; `make check-deploy` does the rest."""

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from deploy.generate.figures import FIGURES
from offsets_decoder.definitions import load_toml
from streaming_app.config.settings import Settings
from streaming_app.job.stopping import STOP_SECONDS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "charts" / "streams-groups"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))


def test_every_file_that_the_image_copies_exists_and_is_not_ignored() -> None:
    included = set((ROOT / ".dockerignore").read_text("utf-8").splitlines())
    lines = [line.split() for line in DOCKERFILE.splitlines() if line.startswith("COPY ") and "--from" not in line]
    copied = [name for words in lines for name in words[1:-1] if not name.startswith("--")]
    assert "streaming_app" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert [name for name in copied if not {f"!{name}", f"!{Path(name).parent}"} & included] == []
    scripts = [*(DEPLOY / "image").glob("*.sh")]
    assert [script.stat().st_mode & stat.S_IXUSR for script in scripts] == [stat.S_IXUSR] * len(scripts) != []


@pytest.mark.parametrize("path", ["image/config.yaml", "streams-groups.example.yaml"])
def test_configuration_files_have_only_known_keys(path: str) -> None:
    Settings.model_validate(yaml.safe_load((DEPLOY / path).read_text("utf-8")))


def test_every_platform_gives_the_job_enough_time_to_end() -> None:
    """`generate --check` compares the platforms with this figure."""
    assert int(FIGURES["seconds until the job is killed"].value) >= STOP_SECONDS + 5


def test_compose_mounts_existing_files_and_publishes_ports_on_loopback_only() -> None:
    mounts = [mount for service in COMPOSE["services"].values() for mount in service.get("volumes", [])]
    for source in (mount.split(":")[0] for mount in mounts):
        assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), source
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_schema_of_the_chart_has_exactly_the_values_of_the_chart() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    assert sorted(_unknown_values(VALUES, schema, "")) == []
    assert set(schema["properties"]) - {"global"} == set(VALUES)


def _unknown_values(values: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in values.items():
        known = schema.get("properties", {}).get(name)
        if known is None and schema.get("additionalProperties") is False:
            yield path + name
        elif isinstance(value, dict) and known:
            yield from _unknown_values(value, known, f"{path}{name}.")


@pytest.mark.parametrize("file", sorted((CHART.parent / "examples").iterdir()), ids=lambda file: file.name)
def test_the_examples_of_the_chart_have_only_known_values(file: Path) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    values = yaml.safe_load(file.read_text("utf-8"))
    assert sorted(_unknown_values(values, schema, "")) == []
    config = values.get("config", {})
    assert config.keys() <= Settings.model_fields.keys()
    # A warehouse that is not on the volume needs none.
    assert ("://" in config.get("warehouse", "")) == (
        values.get("warehouse", {}).get("persistence") == {"enabled": False}
    )


PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pins(file: str) -> dict[str, str]:
    """Return the versions that a file of requirements pins, by name; of several for versions of Python the first."""
    found = PINNED.findall((ROOT / file).read_text("utf-8"))
    return {normal(name): version for name, version in reversed(found)}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", ["requirements", "build"])
def test_a_lock_has_the_versions_that_are_tested_each_with_its_hashes(lock: str) -> None:
    tested, locked = pins("constraints.txt"), pins(f"deploy/image/{lock}.lock")
    assert locked
    assert {name: version for name, version in locked.items() if tested.get(name, version) != version} == {}
    for package in PINNED.split((ROOT / f"deploy/image/{lock}.lock").read_text("utf-8"))[3::3]:
        assert "--hash=sha256:" in package


def test_the_lock_has_every_dependency() -> None:
    project = load_toml(ROOT / "pyproject.toml")["project"]
    needed = [Requirement(one) for one in project["dependencies"]]
    locked = pins("deploy/image/requirements.lock")
    for one in needed:
        if one.marker is None or one.marker.evaluate({"python_version": "3.11"}):
            assert one.specifier.contains(locked[normal(one.name)]), one

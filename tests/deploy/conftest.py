"""Fixtures of the checks that need a Docker engine, and the wheel."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.deploy import docker_engine
from tests.deploy.docker_engine import ROOT, Engine, EngineUnavailableError, ImageUnavailableError

COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))
IMAGE = COMPOSE["services"]["streams-groups"]["image"]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A Docker engine. Without one the test is skipped, and says what is missing."""
    try:
        with docker_engine.docker_engine() as running:
            yield running
    except EngineUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """The image, built from this checkout."""
    try:
        for base in docker_engine.dockerfile_bases():
            docker_engine.provide(engine, base)
    except ImageUnavailableError as error:
        pytest.skip(str(error))
    engine.build(IMAGE, ROOT / "deploy" / "Dockerfile", ROOT)
    return IMAGE


@pytest.fixture
def volume(engine: Engine) -> Iterator[str]:
    name = engine.run("volume", "create")
    yield name
    engine.run("volume", "rm", "--force", name)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the checkout."""
    source, directory = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for name in ("schemas", "offsets_decoder", "streaming_app"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, source)
    subprocess.run(command, check=True, capture_output=True)
    return next(directory.glob("*.whl"))

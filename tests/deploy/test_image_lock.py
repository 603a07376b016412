"""The packages that the image installs by hash: exactly those that are tested, and all that are needed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [Requirement(one) for one in project["dependencies"]]
    locked = pins("deploy/image/requirements.lock")
    for one in needed:
        if one.marker is None or one.marker.evaluate({"python_version": "3.11"}):
            assert one.specifier.contains(locked[normal(one.name)]), one

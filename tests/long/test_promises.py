"""Each promise is held by a test of `make test`: the test fails once the promise is broken in a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.long.promises import PROMISES, Promise

ROOT = Path(__file__).parents[2]
COPIED = ("schemas", "offsets_decoder", "streaming_app", "deploy", "docs", "tests")
"""The directories of a copy, besides the files in the project's own."""
_FAILED = 1
"""pytest's exit code where tests ran and some failed; others mean that none ran."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project, without what tools generate."""
    directory = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        shutil.copytree(ROOT / name, directory / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file() and file.name != ".git":
            shutil.copy(file, directory / file.name)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("one", PROMISES, ids=lambda one: one.promise)
def test_the_test_of_a_promise_fails_once_it_is_broken(one: Promise, copy: Path) -> None:
    file = copy / one.file
    text = file.read_text("utf-8")
    assert text.count(one.before) == 1, f"{one.file} does not hold {one.before!r} once"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", one.test]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    file.write_text(text.replace(one.before, one.after), "utf-8")
    try:
        ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    finally:
        file.write_text(text, "utf-8")
    assert ran.returncode == _FAILED, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert re.search(r"^FAILED ", ran.stdout, re.MULTILINE), "an error of the set-up would say nothing"


def test_contributing_names_each_promise_and_its_test() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [one.promise for one in PROMISES if f"| {one.promise} | `{one.test.partition('::')[0]}` |" not in text] == []


def test_every_file_and_test_that_contributing_says_to_touch_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("## I want to add")[2].partition("\n## ")[0]
    paths = set(re.findall(r"`([\w./*-]+/[\w./*-]+)`", table))
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not list(ROOT.glob(path))] == []

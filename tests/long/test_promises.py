"""Each promise is held by a test of `make test`: the test fails once the promise is broken in a copy of the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.long.adding import ROOT, Edit, copy_project, run_edited
from tests.long.promises import PROMISES, Promise

_FAILED = 1
"""pytest's exit code where tests ran and some failed; others mean that none ran."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("copy"))


@pytest.mark.slow
@pytest.mark.parametrize("one", PROMISES, ids=lambda one: one.promise)
def test_the_test_of_a_promise_fails_once_it_is_broken(one: Promise, copy: Path) -> None:
    edit = Edit(one.file, one.before, one.after)
    ran, _ = run_edited(copy, [edit], "pytest", "-x", "-q", "-p", "no:cacheprovider", one.test)
    assert ran.returncode == _FAILED, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert re.search(r"^FAILED ", ran.stdout, re.MULTILINE), "an error of the set-up would say nothing"


def test_contributing_names_each_promise_and_its_test() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [one.promise for one in PROMISES if f"| {one.promise} | `{one.test.partition('::')[0]}` |" not in text] == []

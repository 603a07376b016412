"""The table "I want to add ..." of CONTRIBUTING.md: each row is carried out in a copy of the project.

Only the files that the row names are edited. The copy must then have the new thing, the tests of the row must pass
there, and exactly these files and those that `make generate` writes have changed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.long.adding import ADDITIONS, ROOT, copy_project, run_edited, table


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("copy"))


@pytest.mark.slow
@pytest.mark.parametrize("thing", ADDITIONS)
def test_a_new_thing_needs_the_files_that_the_table_names_and_no_others(thing: str, copy: Path) -> None:
    addition = ADDITIONS[thing]
    ran, changed = run_edited(copy, addition.edits, "tests.long.adding", thing)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert changed == {*(edit.file for edit in addition.edits), *addition.generated}


def test_every_file_and_test_that_the_table_names_exists() -> None:
    paths = set(re.findall(r"`([\w./*-]+/[\w./*-]+)`", table()))
    assert len(paths) > 2 * len(ADDITIONS)
    assert [path for path in sorted(paths) if not list(ROOT.glob(path))] == []

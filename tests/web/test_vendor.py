"""The files of other projects: each is listed, unchanged, with its licence."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from streaming_app.web.page import STATIC

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED, TESTS_ONLY = STATIC / "vendor", Path(__file__).parent / "vendor"
FILES = [
    pytest.param(folder, entry, id=entry["path"])
    for folder in (SHIPPED, TESTS_ONLY)
    for entry in tomllib.loads((folder / "vendor.toml").read_text("utf-8"))["file"]
]


@pytest.mark.parametrize(("folder", "entry"), FILES)
def test_a_vendored_file_is_the_one_of_its_package(folder: Path, entry: dict[str, Any]) -> None:
    assert hashlib.sha256((folder / entry["path"]).read_bytes()).hexdigest() == entry["sha256"]
    assert (folder / entry["licence_file"]).read_text("utf-8").strip()
    assert entry["url"].startswith("https://github.com/")
    assert entry["licence"]
    assert entry["version"]


@pytest.mark.parametrize("folder", [SHIPPED, TESTS_ONLY], ids=["shipped", "tests only"])
def test_every_vendored_file_is_listed(folder: Path) -> None:
    entries = tomllib.loads((folder / "vendor.toml").read_text("utf-8"))["file"]
    listed = {name for entry in entries for name in (entry["path"], entry["licence_file"])}
    assert {file.name for file in folder.iterdir()} == listed | {"vendor.toml"}


@pytest.mark.parametrize("file", [one.name for one in SHIPPED.glob("*.js")] + [one.name for one in STATIC.glob("*.js")])
def test_no_script_needs_eval(file: str) -> None:
    folder = SHIPPED if (SHIPPED / file).exists() else STATIC
    text = (folder / file).read_text("utf-8")
    assert "new Function(" not in text
    assert "eval(" not in text.replace("retrieval(", "")

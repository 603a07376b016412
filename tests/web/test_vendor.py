"""The files of other projects: each is listed, unchanged, with its licence."""

import hashlib
from pathlib import Path

import pytest

from offsets_decoder.definitions import load_toml
from streaming_app.web.page import STATIC

SHIPPED, TESTS_ONLY = STATIC / "vendor", Path(__file__).parent / "vendor"


@pytest.mark.parametrize("folder", [SHIPPED, TESTS_ONLY], ids=["shipped", "tests only"])
def test_every_vendored_file_is_listed_and_is_the_one_of_its_package(folder: Path) -> None:
    entries = load_toml(folder / "vendor.toml")["file"]
    listed = {name for entry in entries for name in (entry["path"], entry["licence_file"])}
    assert {file.name for file in folder.iterdir()} == listed | {"vendor.toml"}
    for entry in entries:
        assert hashlib.sha256((folder / entry["path"]).read_bytes()).hexdigest() == entry["sha256"], entry["path"]
        assert (folder / entry["licence_file"]).read_text("utf-8").strip()

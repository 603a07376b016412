"""The architecture, as a test: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN_IN_CORE = {"pyspark", "time", "deltalake", "kafka", "os", "pathlib"}


def test_imports_go_one_way() -> None:
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("module", sorted((ROOT / "streaming_app" / "core").glob("*.py")), ids=lambda path: path.name)
def test_the_core_knows_neither_spark_nor_the_clock(module: Path) -> None:
    source = module.read_text("utf-8")
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & FORBIDDEN_IN_CORE
    assert ".now(" not in source

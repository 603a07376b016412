"""The architecture, as a test: which package may import which, and that the pure ones read no clock."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PURE = sorted(
    file for package in ("groups", "lag", "alerts") for file in (ROOT / "streaming_app" / package).glob("*.py")
)
CLOCK = {"now", "today", "utcnow"}
"""Methods of `datetime` that read the clock; import-linter forbids the module `time`."""


def test_imports_go_one_way() -> None:
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("module", PURE, ids=lambda path: path.name)
def test_group_state_and_alert_rules_read_no_clock(module: Path) -> None:
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & CLOCK

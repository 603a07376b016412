"""What import-linter cannot see of the architecture: that the pure packages read no clock."""

import ast
from pathlib import Path

import pytest

from offsets_decoder.definitions import load_toml

ROOT = Path(__file__).parents[2]
CONTRACTS = load_toml(ROOT / "pyproject.toml")["tool"]["importlinter"]["contracts"]
(PURE_ROOMS,) = (contract["source_modules"] for contract in CONTRACTS if "no clock" in contract["name"])
PURE = sorted(
    file
    for place in (ROOT / name.replace(".", "/") for name in PURE_ROOMS)
    for file in (place.glob("*.py") if place.is_dir() else [place.with_suffix(".py")])
)
CLOCK = {"now", "today", "utcnow"}
"""Methods of `datetime` that read the clock; import-linter forbids the module `time`."""


@pytest.mark.parametrize("module", PURE, ids=lambda path: path.name)
def test_a_pure_module_reads_no_clock(module: Path) -> None:
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not called & CLOCK

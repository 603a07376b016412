"""Refuses what makes a test depend on how fast its machine is: `python -m tests.timing_lint`, a part of `make lint`.

WAIT001 is an assertion about time that has passed, WAIT002 a wait of less than a minute, WAIT003 one of a fixed time,
WAIT004 the clock of the whole process, by which servers of other fixtures run; ruff's TID251 refuses `time.sleep`. An
exception is named where it is: `# noqa: WAIT002 - its reason`.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from offsets_decoder.definitions import load_toml

ROOT = Path(__file__).parents[1]
_LEAST = 60.0
_CLOCKS = {"monotonic", "perf_counter"}
_FIRST = {"wait", "join", "result", "acquire", "get"}  # methods whose only argument is seconds
_SECOND = {"wait_until", "wait_for"}
_NAMED = _FIRST | _SECOND | {"communicate", "run", "create_connection", "HTTPConnection", "urlopen", "request"}
_FIXED = {"asyncio.sleep", "wait_for_timeout"}
_CLOCK_MODULES = {"time", "datetime", "asyncio"}
_ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_NOQA = re.compile(r"# noqa: ([A-Z0-9, ]+?) - \S")


def find(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line, and code and text, of what the source must not have."""
    tree, lines = ast.parse(source), source.splitlines()
    constants: dict[str, float] = {}
    clocks = set(_CLOCKS)
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            constants[one.targets[0].id] = _number(one.value, constants)
            clocks |= {one.targets[0].id} if _names(one.value) & _CLOCKS else set()
    for node in ast.walk(tree):
        if text := _judge(node, constants, clocks):
            noqa = _NOQA.search("\n".join(lines[node.lineno - 1 : node.end_lineno]))  # type: ignore[attr-defined]
            if not noqa or text.split()[0] not in noqa[1]:
                yield node.lineno, text  # type: ignore[attr-defined]


def _judge(node: ast.AST, constants: Mapping[str, float], clocks: set[str]) -> str | None:
    if isinstance(node, ast.Assert):
        compared = (one for one in ast.walk(node.test) if isinstance(one, ast.Compare))
        if any(_names(one) & clocks and isinstance(one.ops[0], _ORDERED) for one in compared):
            return "WAIT001 time that has passed is asserted: move a clock that is injected, or count"
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        seconds = [one.value for one in node.keywords if one.arg in {"timeout", "seconds"} and name in _NAMED]
        if name in _SECOND or (name in _FIRST and isinstance(node.func, ast.Attribute) and len(node.args) == 1):
            seconds += node.args[name in _SECOND :][:1]
        if any(0 <= _number(one, constants) < _LEAST for one in seconds):
            return "WAIT002 a wait of less than a minute: wait for what happens, for minutes"
        if name == "setattr" and _module(node.args[0]) in _CLOCK_MODULES:
            return "WAIT004 the clock of the whole process is set, and others sleep by it: set that of a module"
        if {name, ast.unparse(node.func)} & _FIXED and _number(node.args[0], constants) != 0:
            return "WAIT003 a wait of a fixed time: wait for what happens"
    return None


def _module(node: ast.AST) -> str:
    """Return the module that `setattr` changes: of `time` or of "time.monotonic" it is `time`."""
    return str(node.value).partition(".")[0] if isinstance(node, ast.Constant) else getattr(node, "id", "")


def _number(node: ast.AST, constants: Mapping[str, float]) -> float:
    """Return the number that an expression is; -1 if it is none."""
    value = node.value if isinstance(node, ast.Constant) else constants.get(getattr(node, "id", ""), -1)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else -1


def _names(node: ast.AST) -> set[str]:
    return {getattr(one, "attr", getattr(one, "id", "")) for one in ast.walk(node)}


if __name__ == "__main__":
    ruff = load_toml(ROOT / "pyproject.toml")["tool"]["ruff"]["lint"]
    left_out = [one for one, codes in ruff["per-file-ignores"].items() if "TID251" in codes and one[0] != "!"]
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("*.py"))
    checked = [file for file in files if not any(fnmatch(file, pattern) for pattern in left_out)]
    sys.exit("\n".join(f"{one}:{n}: {text}" for one in checked for n, text in find((ROOT / one).read_text())) or None)

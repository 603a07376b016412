"""Mutants: one small change of the code each, to see whether the tests notice. `python -m tests.long.mutants ROOM`.

A mutant is caught if one of the tests of the room fails, or does not end. Which mutants are tried depends on the seed
alone, so two sets of tests can be compared over the same mutants. Each mutant is imported and tested in a process of
its own, which is forked from one that has imported everything but the project; no file of the project changes.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PURE = "not (broker or spark or java or browser)"
_JUDGED = ("tests/lag", "tests/health", "tests/alerts", "tests/recorded", "tests/histories", "tests/relations")
TESTS = {
    "groups": ("tests/recorded", "tests/groups", *_JUDGED),
    "lag": _JUDGED,
    "health": ("tests/health", *_JUDGED),
    "alerts": ("tests/alerts", *_JUDGED),
    "stream": ("tests/stream", "tests/relations", "tests/recorded"),
}
"""Room -> where its tests are, the fastest first."""
_OPTIONS = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-m", _PURE)
# A mutant whose tests take longer counts as caught: it does not end. Of the processor, as the machine may be busy.
_SECONDS, _WAITING = 600, 7_200
_OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv,
}  # fmt: skip
_OTHER = {"min": "max", "max": "min", "any": "all", "all": "any"}


class _Mutation(ast.NodeTransformer):
    """Changes the node with one number, and counts the nodes that can be changed."""

    def __init__(self, chosen: int = -1) -> None:
        self.count, self.text, self._chosen = 0, "", chosen

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return node  # a docstring
        if isinstance(node, ast.AnnAssign):
            node.value = self.visit(node.value) if node.value else None
            return node
        changed = self._changed(node)
        if changed is not None:
            self.count += 1
            if self.count - 1 == self._chosen:
                before, after = ast.unparse(node), ast.unparse(changed)
                self.text = f"{getattr(node, 'lineno', 0)}: {before[:90]!r} -> {after[:90]!r}"
                return ast.copy_location(changed, node)
        return super().generic_visit(node)

    def _changed(self, node: ast.AST) -> ast.AST | None:
        new: Any = copy.copy(node)
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITE:
            new.ops = [_OPPOSITE[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op) in _OPPOSITE:
            new.op = _OPPOSITE[type(node.op)]()
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return node.operand
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OTHER:
            new.func = ast.Name(_OTHER[node.func.id], ast.Load())
        elif isinstance(node, ast.Constant) and type(node.value) in {int, float, bool}:
            new.value = not node.value if isinstance(node.value, bool) else node.value + 1
        elif isinstance(node, ast.IfExp):
            new.body, new.orelse = node.orelse, node.body
        else:
            return None
        return new


def sites(room: str) -> Iterator[tuple[Path, int]]:
    """Yield each place of a room that can be changed: its file, and the number of the node."""
    for file in sorted((ROOT / "streaming_app" / room).rglob("*.py")):
        counter = _Mutation()
        counter.visit(ast.parse(file.read_text("utf-8")))
        yield from ((file, number) for number in range(counter.count))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module of the project from a changed tree."""

    def __init__(self, file: Path, tree: ast.Module) -> None:
        self._name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        self._file, self._tree = file, tree

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._file, loader=self)

    def exec_module(self, module: Any) -> None:
        exec(compile(self._tree, str(self._file), "exec"), module.__dict__)  # noqa: S102 - the project's own code


def _run_tests(file: Path, tree: ast.Module, tests: Sequence[str], without: Sequence[str]) -> int:
    """Run the tests but those `without` on the changed module in this process; return pytest's exit code."""
    import pytest  # noqa: PLC0415 - forked processes share what is imported

    sys.meta_path.insert(0, _Finder(file, tree))
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    signal.alarm(_WAITING)
    for part in tests:  # one after the other, so that the fastest decide most mutants
        code = pytest.main([*_OPTIONS, part, *(f"--deselect={one}" for one in without)])
        if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            return int(code)
    return 0


def is_caught(file: Path, number: int, tests: Sequence[str], without: Sequence[str] = ()) -> tuple[bool, str]:
    """Return whether these tests fail for a mutant, and what it changes."""
    mutation = _Mutation(number)
    tree = ast.fix_missing_locations(mutation.visit(ast.parse(file.read_text("utf-8"))))
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = _run_tests(file, tree, tests, without)
        finally:
            os._exit(min(code, 1))  # also after an error: the mutant cannot be imported
    _, status = os.waitpid(child, 0)
    return status != 0, f"{file.relative_to(ROOT)}:{mutation.text}"


def main() -> None:
    """Try a sample of mutants of a room, and print those that no test notices."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("room", choices=TESTS)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--without",
        nargs="*",
        default=(),
        metavar="TEST",
        help="files or ids of tests: print the mutants that they notice, and whether the others notice them too",
    )
    arguments = parser.parse_args()
    os.environ.setdefault("HYPOTHESIS_PROFILE", "quick")
    import hypothesis  # noqa: F401, PLC0415 - as in `_run_tests`
    import pyarrow as pa  # noqa: PLC0415
    import pydantic  # noqa: F401, PLC0415
    import pytest  # noqa: F401, PLC0415

    pa.set_cpu_count(1)
    tests = tuple(dict.fromkeys(one for one in TESTS[arguments.room] if (ROOT / one).exists()))
    chosen = [*sites(arguments.room)]
    random.Random(arguments.seed).shuffle(chosen)  # noqa: S311 - no secret
    alive, begun = 0, time.monotonic()
    if is_caught(chosen[0][0], -1, tests)[0]:
        sys.exit("The tests fail without a change")
    for count, (file, number) in enumerate(chosen[: arguments.mutants], 1):
        if arguments.without and not is_caught(file, number, arguments.without)[0]:
            continue  # without them it is as it was
        caught, text = is_caught(file, number, tests, arguments.without)
        alive += not caught
        print("caught " if caught else "ALIVE  ", f"{count:4} {time.monotonic() - begun:6.0f} s", text, flush=True)
    print(
        f"{arguments.room}: {alive} of {min(arguments.mutants, len(chosen))} mutants are alive, of {len(chosen)} sites"
    )


if __name__ == "__main__":
    main()

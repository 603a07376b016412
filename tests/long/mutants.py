"""Mutants: one small change of the code each, to see whether the tests notice. `python -m tests.long.mutants ROOM ...`.

Theory of operation
-------------------
One process imports the project and collects the tests. Each test first runs in a fork of it, which counts the calls
that the test makes, and notes the lines of the rooms that it executes. Then each mutant gets a fork: it replaces the
code of the functions that differ, and runs the tests that execute the changed statement, those with the fewest calls
first, until one fails, or they have made as many calls as a mutant may cost. A test with a quarter of these is left
out. Where the change is executed by an import (a constant, a default), the fork is of a process that has not imported
the project; all tests are candidates then.

No file of the project changes. Which mutants are tried, and with which tests, does not depend on the speed of the
machine, so two sets of tests can be compared over the same mutants. Which tests are needed beside others: run it first
with the others, and then with `--every` over the mutants that this run calls alive.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib.abc
import importlib.util
import inspect
import os
import pickle
import random
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryFile
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_PURE = "not (broker or spark or java or browser)"
_JUDGED = ("groups", "lag", "health", "alerts", "recorded", "histories", "relations")
_SHOWN = ("queries", "metrics", "web", "cli", "config", "notify", "checks")
TESTS = {
    **dict.fromkeys(("groups", "lag", "health", "alerts"), _JUDGED),
    **dict.fromkeys(_SHOWN, _SHOWN),
    "stream": ("stream", "relations", "recorded"),
}
"""Room -> the directories of the tests that may notice its mutants."""
_OPTIONS = ("-q", "-n0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-m", _PURE)
_SECONDS, _BYTES = 30, 6 << 30  # a test that needs more of the processor, or memory, has caught a mutant: it runs wild
_CALLS = 12_000_000
_OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv,
}  # fmt: skip
_OTHER = {"min": "max", "max": "min", "any": "all", "all": "any"}


class _Mutation(ast.NodeTransformer):
    """Changes the node with one number, and counts the nodes that can be changed."""

    def __init__(self, chosen: int = -1) -> None:
        self.count, self.text, self.lines, self._chosen = 0, "", range(0), chosen
        self._around: ast.AST = ast.Pass()

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return node  # a docstring
        outer = self._around
        self._around = node if isinstance(node, (ast.stmt, ast.Lambda)) else outer
        try:
            return self._visit(node)
        finally:
            self._around = outer

    def _visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.AnnAssign):
            node.value = self.visit(node.value) if node.value else None
            return node
        changed = self._changed(node)
        if changed is not None:
            self.count += 1
            if self.count - 1 == self._chosen:
                before, after = ast.unparse(node), ast.unparse(changed)
                self.text = f"{getattr(node, 'lineno', 0)}: {before[:90]!r} -> {after[:90]!r}"
                self.lines = _lines(self._around)
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


def _lines(node: Any) -> range:
    """Return the lines of a statement without those of its block, or of a lambda."""
    blocks = [*getattr(node, "cases", ()), *(getattr(node, "body", ()) if isinstance(node, ast.stmt) else ())]
    first = min((getattr(one, "pattern", one).lineno for one in blocks), default=node.end_lineno + 1)
    return range(node.lineno, max(first, node.lineno + 1))


class Mutant(NamedTuple):
    """A change of one node of a file."""

    file: Path
    number: int

    def read(self) -> tuple[ast.Module, _Mutation]:
        """Return the changed tree, and what is changed."""
        mutation = _Mutation(self.number)
        return ast.fix_missing_locations(mutation.visit(ast.parse(self.file.read_text("utf-8")))), mutation

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.read()[1].text} #{self.number}"


def sites(room: str) -> Iterator[Mutant]:
    """Yield each place of a room that can be changed."""
    for file in sorted((ROOT / "streaming_app" / room).rglob("*.py")):
        counter = _Mutation()
        counter.visit(ast.parse(file.read_text("utf-8")))
        yield from (Mutant(file, number) for number in range(counter.count))


def _name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module of the project from a changed tree."""

    def __init__(self, file: Path, tree: ast.Module) -> None:
        self._file, self._tree = file, tree

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != _name(self._file):
            return None
        return importlib.util.spec_from_file_location(fullname, self._file, loader=self)

    def exec_module(self, module: Any) -> None:
        exec(compile(self._tree, str(self._file), "exec"), module.__dict__)  # noqa: S102 - the project's own code


class _Executed:
    """Notes which lines of functions are executed, as a bit each, and counts calls."""

    def __init__(self, files: Sequence[Path], most: int = sys.maxsize) -> None:
        """Let the process die after `most` calls."""
        self.lines, self.calls, self._most = dict.fromkeys(map(str, files), 0), 0, most

    def start(self) -> _Executed:
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def stop(self) -> _Executed:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        return self

    def has(self, file: Path, lines: range) -> bool:
        """Return whether one of the lines was executed."""
        return any(self.lines[str(file)] >> line & 1 for line in lines)

    def _call(self, frame: FrameType, event: str, _: object) -> Any:
        self.calls += event == "call"
        if self.calls > self._most:
            os._exit(0)
        code = frame.f_code
        return self._line if code.co_filename in self.lines and code.co_flags & inspect.CO_OPTIMIZED else None

    def _line(self, frame: FrameType, *_: object) -> Any:
        self.lines[frame.f_code.co_filename] |= 1 << frame.f_lineno
        return self._line


def _in_forks(work: Callable[[Any], Any], ones: Sequence[Any], jobs: int = 1) -> Iterator[tuple[Any, Any]]:
    """Yield each one with what `work` returns for it in a process of its own, or None if that has died."""
    running: dict[int, tuple[Any, Any]] = {}
    left = [*reversed(ones)]
    while left or running:
        if left and len(running) < jobs:
            one, file = left.pop(), TemporaryFile()  # noqa: SIM115 - it is read after the process
            if not (child := os.fork()):
                try:
                    file.write(pickle.dumps(work(one)))
                    file.flush()
                finally:
                    os._exit(0)
            running[child] = one, file
        else:
            one, file = running.pop(os.wait()[0])
            with file:
                file.seek(0)
                result = file.read()
            yield one, pickle.loads(result) if result else None  # noqa: S301 - our own


class _Collected:
    """A plugin of pytest that collects tests, and runs those that it is asked for."""

    def __init__(self, tests: Sequence[str], work: Callable[[_Collected], Any]) -> None:
        """Call `work` once the tests are collected; `result` is what it returns."""
        import pytest  # noqa: PLC0415 - forked processes share what is imported

        self.items: dict[str, Any] = {}
        self._failed, self._work, self.result = False, work, None
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        pytest.main([*_OPTIONS, *tests], plugins=[self])

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = {one.nodeid: one for one in session.items}
        self.result = self._work(self)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._failed = self._failed or report.failed

    def failures(self, tests: Sequence[str], *, every: bool = False) -> str:
        """Run tests until one fails, or every one; return which have failed. The process dies if one runs wild."""
        resource.setrlimit(resource.RLIMIT_DATA, (_BYTES, _BYTES))
        signal.signal(signal.SIGVTALRM, lambda *_: os._exit(1))
        failed = []
        for test, following in zip(tests, [*tests[1:], ""], strict=False):
            signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
            item = self.items[test]
            item.ihook.pytest_runtest_protocol(item=item, nextitem=self.items.get(following))
            if self._failed:
                failed.append(test)
                if not every:
                    break
            self._failed = False
        return " ".join(failed)


class _Trial:
    """Mutants, the tests that may notice them, and what these tests execute."""

    def __init__(self, mutants: Sequence[Mutant], files: Sequence[Path], most: int, jobs: int, *, every: bool) -> None:
        self._mutants, self._files, self._most, self._jobs, self._every = mutants, files, most, jobs, every
        self._executed: dict[str, _Executed] = {}
        self._out = os.fdopen(os.dup(1), "w")
        self.alive: list[Mutant] = []

    def run(self, tests: Sequence[str]) -> None:
        """Try all mutants, and print what becomes of each."""
        ((_, found),) = _in_forks(lambda _: self._collect(tests), [None])
        if found is None or isinstance(found, str):
            sys.exit(f"A test fails without a change: {found}")
        self.alive, again = found
        for (mutant, chosen), caught in _in_forks(lambda one: _import(*one, every=self._every), again, self._jobs):
            self._note(mutant, chosen, caught)

    def _collect(self, tests: Sequence[str]) -> Any:
        """Import and collect; see what each test executes, and try the mutants that need no other import."""
        imported = _Executed(self._files).start()
        return _Collected(tests, lambda collected: self._try_all(collected, imported)).result

    def _try_all(self, collected: _Collected, imported: _Executed) -> Any:
        for file in self._files:
            importlib.import_module(_name(file))
        imported.stop()
        names = {*map(str, self._files)}
        gc.unfreeze()
        functions = [one for one in gc.get_objects() if type(one) is FunctionType and one.__code__.co_filename in names]
        gc.freeze()
        for test, executed in _in_forks(lambda one: self._survey(collected, one), [*collected.items], self._jobs):
            if isinstance(executed, str):
                return executed
            self._executed |= {test: executed} if executed else {}  # None: it makes too many calls
        calls = sum(one.calls for one in self._executed.values())
        print(f"{len(self._executed)} tests make {calls:,} calls", file=self._out, flush=True)
        now, again = [], []
        for mutant in self._mutants:
            lines, patches = mutant.read()[1].lines, _patches(mutant, functions)
            if patches and not imported.has(mutant.file, lines):
                now.append((mutant, self._chosen(mutant.file, lines), patches))
            else:
                again.append((mutant, self._chosen(mutant.file)))
        tried = _in_forks(lambda one: _patch(collected, *one[1:], every=self._every), now, self._jobs)
        for (mutant, chosen, _), caught in tried:
            self._note(mutant, chosen, caught)
        return self.alive, again

    def _survey(self, collected: _Collected, test: str) -> _Executed | str:
        executed = _Executed(self._files, self._most // 4).start()
        failed = collected.failures([test])
        return failed or executed.stop()

    def _chosen(self, file: Path, lines: range | None = None) -> list[str]:
        """Return the tests that execute one of the lines, or of the file first, as many as a mutant may cost."""
        tests = sorted(self._executed, key=lambda one: (self._executed[one].calls, one))
        if lines:
            tests = [one for one in tests if self._executed[one].has(file, lines)]
        else:
            tests.sort(key=lambda one: not self._executed[one].lines[str(file)])
        calls = [*accumulate(self._executed[one].calls for one in tests)]
        return [one for one, sum_ in zip(tests, calls, strict=True) if sum_ <= self._most]

    def _note(self, mutant: Mutant, chosen: Sequence[str], caught: str | None) -> None:
        self.alive += [mutant] if caught == "" else []
        by = f"{len(chosen)} tests" if caught == "" else caught or "time, memory or an error of the import"
        print("ALIVE " if caught == "" else "caught", mutant, "by", by, file=self._out, flush=True)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _patches(mutant: Mutant, functions: Sequence[FunctionType]) -> list[tuple[FunctionType, CodeType]]:
    """Return the functions that a mutant changes with their code; none if it changes what an import executes."""
    name = str(mutant.file)
    before, after = (compile(one, name, "exec") for one in (mutant.file.read_text("utf-8"), mutant.read()[0]))
    changed = {}
    for old, new in zip(_codes(before), _codes(after), strict=True):
        changed[old] = new
        consts = [[one for one in code.co_consts if not isinstance(one, CodeType)] for code in (old, new)]
        if not old.co_flags & inspect.CO_OPTIMIZED and (old.co_code, consts[0]) != (new.co_code, consts[1]):
            return []
    found = ((one, one.__code__) for one in functions if one.__code__.co_filename == name)
    return [(one, changed[code]) for one, code in found if changed.get(code, code) != code]


def _patch(
    collected: _Collected, chosen: Sequence[str], patches: Sequence[tuple[FunctionType, CodeType]], *, every: bool
) -> str:
    for function, code in patches:
        function.__code__ = code
    return collected.failures(chosen, every=every)


def _import(mutant: Mutant, chosen: Sequence[str], *, every: bool) -> str | None:
    sys.meta_path.insert(0, _Finder(mutant.file, mutant.read()[0]))
    tests = {one.partition("::")[0] for one in chosen}
    result: str | None = _Collected([*tests], lambda collected: collected.failures(chosen, every=every)).result
    return result


def main() -> None:
    """Try a sample of mutants of each room, and print those that no test notices."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("rooms", choices=TESTS, nargs="+", metavar="ROOM")
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=_CALLS, help="how many calls the tests of a mutant may make")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tests", nargs="*", metavar="TEST", help="other ones than those that may notice these rooms")
    parser.add_argument("--without", nargs="*", default=(), metavar="TEST", help="files or ids of tests")
    parser.add_argument("--alive-in", type=Path, metavar="FILE", help="only the mutants alive in an earlier output")
    parser.add_argument("--every", action="store_true", help="name every test that notices a mutant")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # so that each run makes the same calls
        os.execve(sys.executable, [*sys.orig_argv], os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606 - itself
    os.environ.setdefault("HYPOTHESIS_PROFILE", "quick")
    for name in ("hypothesis", "pyarrow", "pydantic", "pytest"):
        importlib.import_module(name)
    chosen: list[Mutant] = []
    for room in arguments.rooms:
        mutants = [*sites(room)]
        random.Random(arguments.seed).shuffle(mutants)  # noqa: S311 - no secret
        chosen += mutants[: arguments.mutants]
    if arguments.alive_in:
        alive = arguments.alive_in.read_text("utf-8")
        chosen = [one for one in chosen if f"ALIVE  {one} by" in alive]
    files = sorted({file for room in arguments.rooms for file in (ROOT / "streaming_app" / room).rglob("*.py")})
    directories = dict.fromkeys(f"tests/{one}" for room in arguments.rooms for one in TESTS[room])
    tests = arguments.tests or [one for one in directories if (ROOT / one).exists()]
    trial = _Trial(chosen, files, arguments.calls, arguments.jobs, every=arguments.every)
    trial.run([*tests, *(f"--deselect={one}" for one in arguments.without)])
    for room in arguments.rooms:
        alive = sum(one.file.is_relative_to(ROOT / "streaming_app" / room) for one in trial.alive)
        print(f"{room}: {alive} are alive")


if __name__ == "__main__":
    main()

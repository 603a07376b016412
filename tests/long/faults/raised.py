"""One error in a job's process, at one of its sites: `plant`, which its setup calls before it imports the project.

The sites come from the code: each `try` and each `suppress` with a broad handler (`tests/exceptions.toml`), at its
begin, at each turn of a loop in it, and at its end, when its work is done; and the functions of `OTHERS`, with those
that `tests/sites.toml` says to be of a batch.
"""

import ast
import builtins
import errno
import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from tests.exception_lint import ROOT, find, listed

OTHERS = {
    "read": "stream/batch_records.py:BatchRecords.read",
    "raw": "stream/batch_records.py:BatchRecords.raw",
    "stored rows": "tables/group_rows.py:GroupRows.find",
    "parse": "stream/fold_stage.py:_parts",
    "request": "kafka/offsets_topic.py:OffsetsTopicClient.describe",
    "write": "tables/rust_table.py:RustTable.append",
    "replace": "tables/group_rows.py:GroupRows.replace",
    "file": "tables/location.py:Location.write_text",
}
"""Kinds of sites -> a function that does it, wherever its errors are caught."""
PLACES = {*OTHERS.values(), *listed("sites.toml", "batch")}
"""Functions that raise when they begin."""
ERRORS = {
    "failure": OSError(errno.EIO, "injected failure"),
    "no memory": MemoryError("injected"),
}
"""Errors that say nothing about a record."""
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class _Sites(ast.NodeTransformer):
    """Lets each site of a file call `_reach_site` with its name."""

    def __init__(self, file: str, source: str) -> None:
        self._file, self._places = file, {line: place for place, line in find(source)}
        self._inner = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self._named(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._named(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._named(node)

    def _named(self, node: Any) -> Any:
        outer, self._inner = self._inner, f"{self._inner}.{node.name}".lstrip(".")
        self.generic_visit(node)
        if (name := f"{self._file}:{self._inner}") in PLACES:
            begin = 1 if ast.get_docstring(node) is not None else 0
            node.body[begin:begin] = [_call(name)]
        self._inner = outer
        return node

    def visit_Try(self, node: ast.Try) -> Any:
        self.generic_visit(node)
        place = next((self._places[one.lineno] for one in node.handlers if one.lineno in self._places), None)
        return self._reached(node, place)

    def visit_With(self, node: ast.With) -> Any:
        self.generic_visit(node)
        lines = (one.context_expr.lineno for one in node.items)
        return self._reached(node, next((self._places[line] for line in lines if line in self._places), None))

    def _reached(self, node: Any, place: str | None) -> Any:
        if place is None:
            return node
        name = f"{self._file}:{place}"
        loops = [part for one in node.body for part in ast.walk(one) if isinstance(part, (ast.For, ast.While))]
        for loop in loops:
            loop.body.insert(0, _call(name))
        end = [] if isinstance(node.body[-1], _ENDS) else [_call(name)]
        node.body = [_call(name), *node.body, *end]
        return node


def _call(name: str) -> ast.stmt:
    return ast.parse(f"_reach_site({name!r})").body[0]


class _Loader(SourceFileLoader):
    """Loads a module of the project with its sites."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - as of its base
        return compile(with_sites(Path(self.path)), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the project."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        file = ROOT.parent / Path(*fullname.split("."))
        file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        if not (file.is_relative_to(ROOT) and file.exists()):
            return None
        inner = [str(file.parent)] if file.name == "__init__.py" else None
        loader = _Loader(fullname, str(file))
        return importlib.util.spec_from_file_location(fullname, file, loader=loader, submodule_search_locations=inner)


def with_sites(file: Path) -> ast.Module:
    """Return the code of a file of the project, whose sites call `_reach_site`."""
    source = file.read_text("utf-8")
    return ast.fix_missing_locations(_Sites(str(file.relative_to(ROOT)), source).visit(ast.parse(source)))


def plant(directory: str, site: str = "", call: int = 0, error: str = "") -> None:
    """Raise the error at this call of the site, counted from 0, and once however often the job starts.

    Each call is a line of `reached` in the directory; `raised` is there once the error was.
    """
    reached, raised, main = Path(directory, "reached"), Path(directory, "raised"), os.getpid()
    counts: dict[str, int] = {}

    def reach(name: str) -> None:
        if os.getpid() != main:
            return
        counts[name] = counts.get(name, -1) + 1
        if not site:
            with reached.open("a") as file:
                file.write(name + "\n")
        if name == site and counts[name] >= call and not raised.exists():
            raised.touch()
            raise ERRORS[error]

    builtins._reach_site = reach  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder())

"""Refuses a broad `except` whose place is not in `exceptions.toml`: `python -m tests.exception_lint`, in `make lint`.

An error while records, rows or answers are pulled must not be taken for an error of one of them. So every place that
catches Exception, BaseException, MemoryError or Arrow's errors, and every one that catches OSError around a loop, a
`yield` or an `await`, is listed under the reason why it loses nothing. `suppress` counts as `except`. A handler that
only raises again needs no reason.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1] / "streaming_app"
_BROAD = {"", "Exception", "BaseException", "MemoryError", "ArrowException", "NOT_OF_RECORDS"}
_AROUND_LOOPS = {"OSError"}
_LOOPS = (ast.For, ast.While, ast.comprehension, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor)


def find(source: str) -> Iterator[tuple[str, int]]:
    """Yield the function, by its qualified name, and the line of each broad handler."""
    tree = ast.parse(source)
    values = (one for one in tree.body if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name))
    yield from _find(tree, "", {one.targets[0].id: _names(one.value, {}) for one in values})  # type: ignore[attr-defined]


def _find(node: ast.AST, place: str, constants: Mapping[str, set[str]]) -> Iterator[tuple[str, int]]:
    for one in ast.iter_child_nodes(node):
        is_named = isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        inner = f"{place}.{one.name}".lstrip(".") if is_named else place  # type: ignore[attr-defined]
        for caught, line in _handlers(one, constants):
            loops = (part for statement in one.body for part in ast.walk(statement))  # type: ignore[attr-defined]
            if caught & _BROAD or (caught & _AROUND_LOOPS and any(isinstance(part, _LOOPS) for part in loops)):
                yield inner, line
        yield from _find(one, inner, constants)


def _handlers(node: ast.AST, constants: Mapping[str, set[str]]) -> Iterator[tuple[set[str], int]]:
    """Yield what a `try` catches, or a `with suppress(...)`, by the last names of the errors."""
    for one in getattr(node, "handlers", ()):
        if not (isinstance(one.body[0], ast.Raise) and one.body[0].exc is None):
            yield _names(one.type, constants) if one.type else {""}, one.lineno
    for one in getattr(node, "items", ()):
        call = one.context_expr
        if isinstance(call, ast.Call) and "suppress" in _names(call.func, {}):
            yield set[str]().union(*(_names(each, constants) for each in call.args)), call.lineno


def _names(node: ast.AST, constants: Mapping[str, set[str]]) -> set[str]:
    found = set[str]()
    for one in ast.walk(node):
        name = getattr(one, "attr", getattr(one, "id", None))
        found |= {name, *constants.get(name, ())} if isinstance(name, str) else set()
    return found


def listed() -> list[str]:
    """Return the places that have a reason: file:function."""
    reasons = tomllib.loads(Path(__file__).with_name("exceptions.toml").read_text("utf-8"))
    return [place for reason in reasons.values() for place in reason["places"]]


def main() -> str | None:
    places = listed()
    files = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in sorted(ROOT.rglob("*.py"))}
    found = {f"{name}:{place}": line for name, text in files.items() for place, line in find(text)}
    lines = [
        f"{one}, line {found[one]}: say in tests/exceptions.toml why this loses nothing"
        for one in found.keys() - set(places)
    ]
    lines += [f"{one} of tests/exceptions.toml: no such place" for one in places if one not in found]
    return "\n".join(sorted(lines)) or None


if __name__ == "__main__":
    sys.exit(main())

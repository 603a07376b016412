"""Refuses a broad `except`, or a call that can fail, whose place has no class: `python -m tests.exception_lint`.

An error while records, rows or answers are pulled must not be taken for an error of one of them. So every place that
catches Exception, BaseException, MemoryError or Arrow's errors, and every one that catches OSError around a loop, a
`yield` or an `await`, is listed in `exceptions.toml` under the reason why it loses nothing. `suppress` counts as
`except`. A handler that only raises again needs no reason.

And each function of the job's rooms that reads, parses, asks, writes or renames is listed in `sites.toml` under what
its errors mean: data of one record, or everything else.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from offsets_decoder.definitions import load_toml

ROOT = Path(__file__).parents[1] / "streaming_app"
_BROAD = {"", "Exception", "BaseException", "MemoryError", "ArrowException", "NOT_OF_RECORDS"}
_AROUND_LOOPS = {"OSError"}
_ROOMS = ("job", "kafka", "notify", "stream", "tables")
_CALLS = {
    *("read_text", "read_bytes", "find_text", "read_file", "collect", "toArrow", "read_all", "iterdir"),
    *("delta_table", "open_input_file", "get_add_actions", "get_file_info_selector"),
    *("loads", "decode_file", "decode", "ParquetFile"),
    *("ask", "send", "send_to_any", "request", "urlopen"),
    *("write_text", "write_bytes", "write_file", "write_deltalake", "write_table", "create_write_transaction"),
    *("create_checkpoint", "vacuum", "execute", "compact", "dump"),
    *("rename", "unlink", "rmtree", "hardlink_to", "delete_file", "delete_dir"),
}
"""That read, parse, ask, write, or rename and remove: their names, whatever they are called on."""
_LOOPS = (ast.For, ast.While, ast.comprehension, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor)


def find(source: str) -> Iterator[tuple[str, int]]:
    """Yield the function, by its qualified name, and the line of each broad handler."""
    tree = ast.parse(source)
    values = (one for one in tree.body if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name))
    constants = {one.targets[0].id: _names(one.value, {}) for one in values}  # type: ignore[attr-defined]
    for place, one in _places(tree):
        for caught, line in _handlers(one, constants):
            loops = (part for statement in one.body for part in ast.walk(statement))  # type: ignore[attr-defined]
            if caught & _BROAD or (caught & _AROUND_LOOPS and any(isinstance(part, _LOOPS) for part in loops)):
                yield place, line


def find_calls(source: str) -> Iterator[tuple[str, int]]:
    """Yield the function, by its qualified name, and the line of each such call."""
    for place, one in _places(ast.parse(source)):
        if isinstance(one, ast.Call) and getattr(one.func, "attr", getattr(one.func, "id", None)) in _CALLS:
            yield place, one.lineno


def _places(node: ast.AST, place: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield each node with the qualified name of the function that it is in."""
    for one in ast.iter_child_nodes(node):
        yield place, one
        is_named = isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _places(one, f"{place}.{one.name}".lstrip(".") if is_named else place)  # type: ignore[attr-defined]


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


def listed(table: str = "exceptions.toml", *classes: str) -> list[str]:
    """Return the places of a table that have these classes, by default any: file:function."""
    found = load_toml(Path(__file__).with_name(table))
    return [place for name, one in found.items() if not classes or name in classes for place in one["places"]]


def _differences(table: str, found: Mapping[str, int], what: str) -> list[str]:
    places = listed(table)
    lines = [f"{one}, line {found[one]}: say in tests/{table} {what}" for one in found.keys() - set(places)]
    return [
        *lines,
        *(f"{one} of tests/{table}: no such place" for one in places if one not in found),
        *(f"{one} of tests/{table}: twice" for one in set(places) if places.count(one) > 1),
    ]


def main() -> str | None:
    files = {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in sorted(ROOT.rglob("*.py"))}
    broad = {f"{name}:{place}": line for name, text in files.items() for place, line in find(text)}
    rooms = {name: text for name, text in files.items() if name.startswith(_ROOMS)}
    calls = {f"{name}:{place}": line for name, text in rooms.items() for place, line in find_calls(text)}
    lines = [
        *_differences("exceptions.toml", broad, "why this loses nothing"),
        *_differences("sites.toml", calls, "what an error of this call means"),
    ]
    return "\n".join(sorted(lines)) or None


if __name__ == "__main__":
    sys.exit(main())

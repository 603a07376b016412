"""Writes the parts of these pages that come from the code: `python -m docs.generate`, or `make generate`.

The command reference comes from `--help`, the table reference from `schemas/tables/`, the list and the picture of the
packages from the import contract in `pyproject.toml`. `make lint` compares the committed pages with what this writes.
"""
# ruff: noqa: INP001

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from click.testing import CliRunner

from deploy.generate.output import finish
from docs import figures
from offsets_decoder.definitions import load_toml
from streaming_app.cli.main import main as streams_groups
from streaming_app.tables.definitions import Table, table, tables, views

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
_HELP_WIDTH = 100
_TOO_LONG = {"README.md": 120}
_DATA = "Definitions, as data: one file per record of `__consumer_offsets`, table, view or request. No Python."
_BEGIN = "<!-- {name}, written by `python -m docs.generate` -->"
_END = "<!-- end of {name} -->"


def pages() -> dict[str, str]:
    """Return the text of every generated file by its path in the project."""
    texts = {
        "command-reference.md": command_reference(),
        "table-reference.md": table_reference(),
        "architecture.md": _replace_part((DOCS / "architecture.md").read_text("utf-8"), "packages", package_table()),
        "figures/record-to-alert.svg": figures.record_to_alert(),
        "figures/crash.svg": figures.crash(),
        "figures/packages.svg": figures.rooms(_layers(), [*_package_layers()[1:], "schemas"]),
    }
    return {f"docs/{name}": text for name, text in texts.items()}


def command_reference() -> str:
    """Return the page of all commands: what each prints for `--help`."""
    parts = [
        "# Command reference\n",
        "Written from the `--help` of each command by `python -m docs.generate`: change the commands, not this page.",
        "[Commands](commands.md) has examples.\n",
        f"```text\n{_help()}```\n",
    ]
    return "\n".join([*parts, *_command_sections(streams_groups)])


def _command_sections(group: click.Group, *path: str) -> Iterator[str]:
    """Give a section for each command of a group, followed by those of its own commands."""
    for name, command in sorted(group.commands.items()):
        words = (*path, name)
        heading = f"{'#' * (1 + len(words))} streams-groups {' '.join(words)}"
        yield f"{heading}\n\n```text\n{_help(*words)}```\n"
        if isinstance(command, click.Group):
            yield from _command_sections(command, *words)


def _help(*command: str) -> str:
    shown = CliRunner().invoke(
        streams_groups, [*command, "--help"], prog_name="streams-groups", terminal_width=_HELP_WIDTH
    )
    return shown.output


def table_reference() -> str:
    """Return the page of all tables, views and nested types."""
    parts = [
        "# Table reference\n",
        "Written from `schemas/tables/` by `python -m docs.generate`: change those files, not this page.",
        "[Tables and SQL](tables.md) says how to query them.\n",
        "| name | kind | one row per |\n| --- | --- | --- |",
        *(f"| [`{one.name}`](#{one.name}) | {_kind(one)} | {_row_key(one)} |" for one in (*tables(), *views())),
        "",
        *map(_table_section, tables()),
        *map(_table_section, views()),
        "## Nested types\n\nThey occur only within columns of the tables above.\n",
        *(_table_section(one, level=3) for one in _nested()),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _kind(one: Table) -> str:
    if one.view_of:
        return f"view of [`{one.view_of}`](#{one.view_of})"
    return "view" if one.is_view else "Delta table"


def _row_key(one: Table) -> str:
    return ", ".join(f"`{name}`" for name in one.key)


def _table_section(one: Table, level: int = 2) -> str:
    types = {column.name: column.type for column in table(one.view_of).columns} if one.view_of else {}
    kept = ("cluster", "group_id", *one.also) if one.view_of else ()
    rows = [
        *((name, types[name], f"As in `{one.view_of}`.") for name in kept),
        *((column.name, column.type, column.about) for column in (*one.columns, *one.computed)),
    ]
    lines = [
        f"{'#' * level} {one.name}\n",
        f"{one.about}\n",
        *([f"{_kind(one)[0].upper()}{_kind(one)[1:]}, one row per {_row_key(one)}.\n"] if one.key else []),
        "| column | type | what it is |\n| --- | --- | --- |",
        *(f"| `{name}` | {_type(kind)} | {_cell(about)} |" for name, kind, about in rows),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _type(kind: str) -> str:
    """Give a column's type; instead of a struct the name of its definition, as a link."""
    for one in sorted((*views(), *_nested()), key=lambda one: -len(one.struct)):  # nested ones come last
        if one.struct in kind:
            return f"[`{kind.replace(one.struct, one.name)}`](#{one.name})"
    return f"`{kind}`"


def _nested() -> tuple[Table, ...]:
    names = sorted(path.stem for path in (ROOT / "schemas" / "tables").glob("*.toml"))
    return tuple(one for one in map(table, names) if one.nested)


def package_table() -> str:
    """Return the packages of `streaming_app` from the highest layer to the lowest, with what may be in each."""
    inside = ((f"`{name}`", f"streaming_app.{name}") for layer in _layers() for name in layer)
    outside = ((f"`{name}`, next to `streaming_app`", name) for name in _package_layers()[1:])
    rows = [f"| {label} | {_first_paragraph(module)} |" for label, module in (*inside, *outside)]
    rows.append(f"| `schemas`, next to `streaming_app` | {_DATA} |")
    return "\n".join(["| package | what it holds |", "| --- | --- |", *rows])


def _first_paragraph(module: str) -> str:
    place = ROOT / module.replace(".", "/")
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text("utf-8"))) or ""
    return " ".join(text.strip().split("\n\n")[0].split())


def _contracts() -> Iterator[Sequence[str]]:
    """Give the layers of each `layers` contract over whole packages."""
    pyproject = load_toml(ROOT / "pyproject.toml")
    for contract in pyproject["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and contract.get("containers") in (None, ["streaming_app"]):
            yield contract["layers"]


def _package_layers() -> Sequence[str]:
    return next(layers for layers in _contracts() if "streaming_app" in layers)


def _layers() -> Sequence[Sequence[str]]:
    layers = next(layers for layers in _contracts() if "cli" in layers)
    return [re.split(r"\s*[|:]\s*", layer.strip("()")) for layer in layers]


def _replace_part(text: str, name: str, part: str) -> str:
    """Return `text` with the lines between the markers of `name` replaced. Raises ValueError without such markers."""
    begin, end = _BEGIN.format(name=name), _END.format(name=name)
    if begin not in text or end not in text:
        raise ValueError(f"no markers for {name}")
    return text[: text.index(begin)] + f"{begin}\n\n{part}\n\n" + text[text.index(end) :]


if __name__ == "__main__" and finish(ROOT, pages(), _TOO_LONG, sys.argv[1:]):
    sys.exit(1)

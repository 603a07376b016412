"""Formats rows as text: padded columns as Kafka's tools print them, tables for a terminal, JSON, CSV.

No output contains a control character, wherever it is in a value.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from streaming_app.text import count, escape, escape_json, is_visible

if TYPE_CHECKING:
    from rich.table import Table

Rows = Sequence[Mapping[str, Any]]
_NULL = "-"
_MAX_PADDED = 200  # terminal cells: a wider value does not widen the column for other rows
_WIDEST = 10_000_000
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""First characters of formulas, by OWASP's page on CSV injection: the last four are full-width forms of the first."""

_TITLES = {
    "group_id": "GROUP",
    "subtopology_id": "SUBTOPOLOGY",
    "task_id": "TASK",
    "member_id": "MEMBER",
    "process_id": "PROCESS",
    "client_host": "HOST",
}


def title(column: str) -> str:
    """Return the title of a column of the tables in the output of commands."""
    return _TITLES.get(column, column.upper().replace("_", "-"))


def columns(rows: Rows) -> str:
    """Return padded columns with a header, as `kafka-streams-groups.sh` prints them; there must be a row."""
    padded = (_padded(name, [row[name] for row in rows]) for name in rows[0])
    return "\n".join(map(str.rstrip, map(" ".join, zip(*padded, strict=True))))


def _padded(name: str, values: Sequence[Any]) -> list[str]:
    """Return the cells of a column below its title, each as wide as the widest.

    A list may have 100,000 rows: a column that needs neither escapes nor the widths of a terminal is faster.
    """
    texts = [name, *((value if type(value) is str else cell(value)) or _NULL for value in values)]
    if is_visible(whole := "".join(texts)) and whole.isascii():
        width = min(max(map(len, texts)), _MAX_PADDED)
        return [text.ljust(width) for text in texts]
    texts = [*map(escape, texts)]
    width = min(max(map(_width, texts)), _MAX_PADDED)
    return [_pad(text, width) for text in texts]


def _width(text: str) -> int:
    """Return the width in terminal cells. For ASCII it is the length, and much faster."""
    return len(text) if text.isascii() else cell_len(text)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def terminal_table(names: Sequence[str], rows: Rows, title: str | None = None) -> Table:
    """Return a table for the terminal."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - most commands need none of these
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(
        box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )
    for name in names:
        table.add_column(Text(cell(name)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row[name])) for name in names))
    return table


def print_table(names: Sequence[str], rows: Rows) -> None:
    """Print rows and their number: as a table without wrapped lines, or on a narrow terminal as a block per row."""
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415

    console = Console()
    table = terminal_table(names, rows)
    width = console.measure(table, options=console.options.update(width=_WIDEST)).maximum
    if not console.is_terminal:
        console = Console(width=max(width, console.width))
    if rows and width > console.width:
        console.print(Text("\n".join(_blocks(names, rows))), soft_wrap=True)
    else:
        console.print(table)
    console.print(count(len(rows), "row"), style="dim", highlight=False)


def _blocks(names: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield the lines of a block for each row: one line per column that is not null, with the column's name first."""
    heads = {name: cell(name) for name in names}
    width = max(map(_width, heads.values())) + 1
    for number, row in enumerate(rows, 1):
        yield f"-[ row {number:,} ]-"
        yield from (
            f"{_pad(f'{head}:', width)} {cell(row[name])}" for name, head in heads.items() if row[name] is not None
        )
        yield ""


def as_json(value: object) -> str:
    """Return indented JSON: times in ISO 8601 with Z, bytes in base64, NaN and infinity as text."""
    return _to_json(value, indent=2)


def as_csv(names: Sequence[str], rows: Rows) -> str:
    """Return CSV with a header line; nested values are JSON.

    Text that a spreadsheet would parse as a formula gets an apostrophe in front, as OWASP advises.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_csv_cell, names))
    writer.writerows([_csv_cell(row[name]) for name in names] for row in rows)
    return out.getvalue()


def _csv_cell(value: object) -> str:
    text = cell(value)
    is_number = isinstance(value, int | float | Decimal)
    is_formula = text.startswith(_FORMULA) or (isinstance(value, str) and value.startswith(_FORMULA))
    return f"'{text}" if is_formula and not is_number else text


def cell(value: object) -> str:
    """Return a value as text on one line: empty for null, nested values as JSON, characters escaped as in `escapes`."""
    if isinstance(value, str):
        return escape(value)
    if value is None:
        return ""
    return _to_json(value) if isinstance(value, (list, dict)) else escape(str(_json_value(value)))


def _to_json(value: object, indent: int | None = None) -> str:
    try:
        text = json.dumps(value, default=_json_value, ensure_ascii=False, allow_nan=False, indent=indent)
    except ValueError:  # NaN or infinity
        text = json.dumps(_finite(value), default=_json_value, ensure_ascii=False, indent=indent)
    return escape_json(text)


def _finite(value: object) -> object:
    """Return the value with NaN and infinity, at any depth, replaced by the text that JavaScript prints for them."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, (int, float)) else str(value)

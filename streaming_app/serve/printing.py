"""Rows to text: padded columns as Kafka's tools print them, boxes for SQL, JSON, CSV."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

Rows = Sequence[Mapping[str, Any]]
_NULL = "-"


def columns(rows: Rows) -> str:
    """Padded columns under their names, as `kafka-streams-groups.sh` prints them; nothing for no rows."""
    if not rows:
        return ""
    lines = [[str(name) for name in rows[0]], *([cell(value) or _NULL for value in row.values()] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]  # as terminals see it, not len
    return "\n".join(" ".join(set_cell_size(*one) for one in zip(line, widths, strict=True)).rstrip() for line in lines)


def box(names: Sequence[str], rows: Rows, title: str | None = None) -> Table:
    """A table for the terminal."""
    table = Table(
        box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row[name])) for name in names))
    return table


def as_json(value: object) -> str:
    """JSON as people read it: times in ISO 8601 with Z, bytes in base64."""
    return json.dumps(value, default=_json_value, ensure_ascii=False, indent=2)


def as_csv(names: Sequence[str], rows: Rows) -> str:
    """CSV with a line of names; nested values as JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([cell(row[name]) for name in names] for row in rows)
    return out.getvalue()


def cell(value: object) -> str:
    """One value as text: empty for null; control characters escaped, so that a group id cannot break a line."""
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=_json_value, ensure_ascii=False)
    text = value if isinstance(value, str) else str(_json_value(value))
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _json_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, (int, float)) else str(value)

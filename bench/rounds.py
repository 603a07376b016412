"""Tables of benchmarks."""

import os
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of texts; the first column has no title."""
    table = Table("", *columns, title=f"{title}; load {os.getloadavg()[0]:.1f}")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    Console(width=120).print(table)

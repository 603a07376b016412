"""Output of benchmarks: tables, and results of rivals that run in turns over the same records."""

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence

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


def print_rounds(title: str, seconds: Mapping[str, Sequence[float]], records: int) -> None:
    """Print the seconds of each round, and the records per second of the median; ratios are to the first label."""
    medians = {label: statistics.median(each) for label, each in seconds.items()}
    base = next(iter(medians.values()))
    rows = [
        (
            label,
            ", ".join(f"{one:.1f}" for one in each),
            f"{records / medians[label]:,.0f}",
            f"{base / medians[label]:.2f}",
        )
        for label, each in seconds.items()
    ]
    print_table(f"{title}; rounds in turns", ("seconds, each round", "records/s, median", "ratio"), rows)

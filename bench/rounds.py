"""The table of a benchmark whose rivals run in turns over the same records."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def print_rounds(title: str, seconds: Mapping[str, Sequence[float]], records: int) -> None:
    """Print the seconds of each round, and the records a second of the median; ratios are to the first label."""
    table = Table(title=f"{title}; rounds in turns; load {os.getloadavg()[0]:.1f}")
    for column in ("", "seconds, each round", "records/s, median", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    medians = {label: statistics.median(each) for label, each in seconds.items()}
    base = next(iter(medians.values()))
    for label, each in seconds.items():
        texts = ", ".join(f"{one:.1f}" for one in each)
        table.add_row(label, texts, f"{records / medians[label]:,.0f}", f"{base / medians[label]:.2f}")
    Console(width=120).print(table)

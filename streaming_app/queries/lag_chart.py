"""The lag over time as shapes of an SVG, for the page and the report of an incident. Pure.

The line is the sum at the end of each bin, the band behind it from the least to the most within the bin. Where the lag
of no partition was known there is a gap, and a bar where that of some was not: there the line is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from streaming_app.queries.lag_series import LagBin

WIDTH = HEIGHT = 1000


@dataclass(frozen=True)
class LagChart:
    """Points as SVG has them: x from 0 to `WIDTH`, y from 0 (the most) to `HEIGHT` (no lag)."""

    lines: Sequence[str]
    bands: Sequence[str]
    """Polygons, one for each line."""
    unknown: Sequence[tuple[float, float]]
    """x and width of where the lag of some partitions, or of all, was not known."""
    most: int
    most_at: datetime
    """When the bin with the most began."""
    newest: int | None
    """At the end; None if it is not known there."""


def lag_chart(bins: Sequence[LagBin]) -> LagChart | None:
    """Return the chart of bins, the oldest first; None if the lag was not known in any of them."""
    highest = max((one for one in bins if one.most is not None), key=lambda one: one.most or 0, default=None)
    if highest is None:
        return None
    most = highest.most or 0
    runs = list(_runs([one.most is not None for one in bins]))
    return LagChart(
        lines=[_line(bins, run, most) for run in runs],
        bands=[_band(bins, run, most) for run in runs],
        unknown=[(_x(run.start, bins), _x(len(run), bins)) for run in _runs([one.unknown > 0 for one in bins])],
        most=most,
        most_at=highest.begin,
        newest=bins[-1].lag,
    )


def _runs(flags: Sequence[bool]) -> Iterator[range]:
    """Yield the positions of flags that are set one after the other."""
    for is_set, those in groupby(range(len(flags)), key=flags.__getitem__):
        if is_set:
            found = list(those)
            yield range(found[0], found[-1] + 1)


def _line(bins: Sequence[LagBin], run: range, most: int) -> str:
    values = [bins[number].lag for number in run]
    return _steps(bins, run, [bins[n].most if one is None else one for n, one in zip(run, values, strict=True)], most)


def _band(bins: Sequence[LagBin], run: range, most: int) -> str:
    above = _steps(bins, run, [bins[number].most for number in run], most)
    below = _steps(bins, run, [bins[number].least for number in run], most)
    return f"{above} {' '.join(reversed(below.split(' ')))}"


def _steps(bins: Sequence[LagBin], run: range, values: Sequence[int | None], most: int) -> str:
    """Return two points for each run of equal values."""
    points, position = list[str](), run.start
    for value, those in groupby(values):
        end = position + len(list(those))
        y = f"{HEIGHT - HEIGHT * (value or 0) / max(1, most):.0f}"
        points += [f"{_x(position, bins):g},{y}", f"{_x(end, bins):g},{y}"]
        position = end
    return " ".join(points)


def _x(position: int, bins: Sequence[LagBin]) -> float:
    return round(WIDTH * position / len(bins), 1)

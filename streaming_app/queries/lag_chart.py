"""The lag, the time behind and the rates over time as shapes of an SVG, for the page and the reports. Pure.

The line is the sum at the end of each bin, the band behind it from the least to the most within the bin. Where the lag
of no partition was known there is a gap, and a bar where that of some was not: there the line is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from streaming_app.queries.behind_series import Behind
from streaming_app.queries.lag_series import LagBin
from streaming_app.queries.rate_series import Rate

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


def behind_chart(series: Mapping[int, Behind], bins: int, begin: datetime, end: datetime) -> LagChart | None:
    """Return the chart of how far behind a group was, in seconds; None if that was never known."""
    length, found = (end - begin) / bins, list[LagBin]()
    for number in range(bins):
        one, at = series.get(number), begin + number * length
        unknown = int(one.is_lower_bound) if one else 0
        if one is None or one.most is None:
            found.append(LagBin(at, at + length, None, None, None, unknown, unknown))
        else:
            at_end = None if one.at_end is None else round(one.at_end)
            found.append(LagBin(at, at + length, at_end, round(one.least), round(one.most), unknown, unknown))
    return lag_chart(found)


@dataclass(frozen=True)
class RateChart:
    """Points as those of `LagChart`."""

    produced: Sequence[str]
    committed: Sequence[str]
    unknown: Sequence[tuple[float, float]]
    """x and width of where the rates of some partitions, or of all, were not known."""
    most: float
    newest: Rate | None
    """Of the last part of which it is known."""


def rate_chart(series: Mapping[int, Rate], bins: int) -> RateChart | None:
    """Return the chart of the rates; None if they were never known."""
    most = max((max(one.produced, one.committed) for one in series.values()), default=None)
    if most is None:
        return None
    runs = list(_runs([number in series for number in range(bins)]))
    is_unknown = [number in series and series[number].is_partial for number in range(bins)]

    def lines(name: str) -> list[str]:
        return [_points(run, [getattr(series[number], name) for number in run], most, bins) for run in runs]

    unknown = [(_place(run.start, bins), _place(len(run), bins)) for run in _runs(is_unknown)]
    return RateChart(lines("produced"), lines("committed"), unknown, most, series[max(series)])


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
    return _points(run, values, most, len(bins))


def _points(run: range, values: Sequence[float | None], most: float, bins: int) -> str:
    """Return two points for each run of equal values."""
    points, position = list[str](), run.start
    for value, those in groupby(values):
        end = position + len(list(those))
        y = f"{HEIGHT - HEIGHT * (value or 0) / max(1e-9, most):.0f}"
        points += [f"{_place(position, bins):g},{y}", f"{_place(end, bins):g},{y}"]
        position = end
    return " ".join(points)


def _x(position: int, bins: Sequence[LagBin]) -> float:
    return _place(position, len(bins))


def _place(position: int, bins: int) -> float:
    return round(WIDTH * position / bins, 1)

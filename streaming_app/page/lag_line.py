"""The lag of a group over time, from the samples of its partitions. Pure.

A partition has a sample whenever its lag has changed, so its lag at any time is that of its last sample. What it was
before its first sample of the range is not known, and not drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streaming_app.page.timeline import WIDTH
from streaming_app.page.words import number
from streaming_app.text import utc

Row = Mapping[str, Any]
_POINTS = 250


@dataclass(frozen=True)
class LagLine:
    """The points of a line, as SVG has them: x in thousandths of the width, y from 0 (most) to 1000 (no lag)."""

    points: str
    most: int
    """The largest sum of offsets."""
    most_at: str
    newest: int


def lag_line(samples: Iterable[Row], begin: datetime, end: datetime) -> LagLine | None:
    """Return the line of the samples from `begin` to `end`, oldest first; None for fewer than two points."""
    totals = list(_totals(samples, begin, end))
    if len(totals) < 2:  # noqa: PLR2004 - a line
        return None
    most_at, most = max(totals, key=lambda one: one[1])
    length = end - begin
    points = [(WIDTH * ((at - begin) / length), 1000 - 1000 * total / max(1, most)) for at, total in _thinned(totals)]
    steps = [
        f"{x:.1f},{previous:.0f} {x:.1f},{y:.0f}" for (x, y), (_, previous) in zip(points[1:], points, strict=False)
    ]
    text = " ".join([f"{points[0][0]:.1f},{points[0][1]:.0f}", *steps, f"{WIDTH},{points[-1][1]:.0f}"])
    return LagLine(text, most, f"{number(most)} offsets at {utc(most_at)}", totals[-1][1])


def _totals(samples: Iterable[Row], begin: datetime, end: datetime) -> Iterable[tuple[datetime, int]]:
    """Yield the sum over the partitions after each time at which one of them has a sample."""
    lag: dict[tuple[str, int], int] = {}
    at: datetime | None = None
    for sample in samples:
        if not begin <= sample["observed_at"] <= end:
            continue
        if at is not None and sample["observed_at"] != at and lag:
            yield at, sum(lag.values())
        at = sample["observed_at"]
        key = (sample["topic"], sample["partition"])
        if sample["lag"] is None:
            lag.pop(key, None)
        else:
            lag[key] = sample["lag"]
    if at is not None and lag:
        yield at, sum(lag.values())


def _thinned(totals: Sequence[tuple[datetime, int]]) -> list[tuple[datetime, int]]:
    """Return at most about `_POINTS` of them: of each part of the time the one with the most lag, and the last."""
    size = -(-len(totals) // _POINTS)
    kept = [max(totals[start : start + size], key=lambda one: one[1]) for start in range(0, len(totals), size)]
    return kept if kept[-1] == totals[-1] else [*kept, totals[-1]]

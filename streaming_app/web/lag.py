"""Sums of lag that no view has: of groups with one cause, of a box in a picture, at a time in the past. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streaming_app.text import duration

Row = Mapping[str, Any]


class Lag(NamedTuple):
    """The lag of some partitions, with columns of `group_lag`."""

    lag: int | None = None
    """The sum in offsets over partitions with a known lag; None if there are none."""
    lag_seconds: float | None = None
    """Age of the oldest waiting record."""
    is_lower_bound: bool = False
    unknown_partitions: int = 0

    @classmethod
    def of(cls, row: Row) -> Lag:
        """Return the lag of a row with these columns."""
        return cls(row["lag"], row["lag_seconds"], bool(row["is_lower_bound"]), row["unknown_partitions"] or 0)

    @property
    def text(self) -> str:
        """The lag in offsets and time; `not known` if no partition's is, or the sum is 0 and lacks partitions."""
        if self.lag is None or (self.unknown_partitions and not self.lag):
            return "not known"
        text = f"{'≥ ' if self.unknown_partitions else ''}{self.lag:,}"
        if self.lag_seconds is None or self.lag_seconds < 1:
            return text
        return f"{text} · {'≥ ' if self.is_lower_bound else ''}{duration(self.lag_seconds)}"

    @property
    def waiting(self) -> str:
        """The text on an edge: empty if nothing waits, or the lag is not measured."""
        if self.lag or self.unknown_partitions:
            return f"lag {self.text}" if self.text == "not known" else self.text
        return ""


def sum_of(lags: Iterable[Lag]) -> Lag | None:
    """Return the sum; None if there are no values. If some of them are unknown, the sum is a lower bound."""
    found = list(lags)
    if not found:
        return None
    known = [one.lag for one in found if one.lag is not None]
    unknown = sum(one.unknown_partitions for one in found) or int(0 < len(known) < len(found))
    return Lag(
        sum(known) if known else None,
        max((one.lag_seconds for one in found if one.lag_seconds is not None), default=None),
        bool(unknown) or any(one.is_lower_bound for one in found),
        unknown,
    )


def lag_by(rows: Iterable[Row], column: str) -> dict[str, Lag]:
    """Return value of a column -> the sum over rows of `lag`. Rows without a value, or without a lag, do not count."""
    lags = defaultdict[str, list[Lag]](list)
    for row in rows:
        if row[column] is not None and (row["lag"] is not None or row["is_unknown"]):
            is_older = row["lag_seconds_is_lower_bound"] or (row["lag"] and row["lag_seconds"] is None)
            is_lower = bool(row["is_unknown"] or is_older)
            lags[row[column]].append(Lag(row["lag"], row["lag_seconds"], is_lower, int(row["is_unknown"])))
    return {value: total for value, own in lags.items() if (total := sum_of(own))}

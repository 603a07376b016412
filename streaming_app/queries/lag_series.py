"""The lag of a group over time, from `lag_history`: its sum at the end of each part of it, the least and the most.

A row of `lag_history` holds until the next one of its partition, and for `SAMPLE_LASTS` at most: the job writes one an
hour where nothing changes, so where none comes it did not know the lag. Rows of releases before that one, which are
those without `log_start_offset`, hold until the next one. The last one holds for as long as `lag` is known, and a
partition of which `lag` has no row any more is gone after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from streaming_app.lag.model import HISTORY_REST_SECONDS
from streaming_app.lag.status import LEFT_OVER
from streaming_app.tables.reader import WarehouseReader, of_group, time_literal
from streaming_app.text import EPOCH

SAMPLE_LASTS = timedelta(seconds=1.5 * HISTORY_REST_SECONDS)
BINS = 250
"""Parts of the time that `lag_series` tells apart."""

_MICROSECOND = timedelta(microseconds=1)
_LASTS, _PAUSE = SAMPLE_LASTS // _MICROSECOND, timedelta(minutes=2) // _MICROSECOND
_SAMPLES = f"""
SELECT topic, partition, committed_offset, log_end_offset, status, CAST(observed_at AS BIGINT) AS at,
  lag_seconds, lag_seconds_is_lower_bound, observed_at,
  status <> '{LEFT_OVER}' AS is_read,
  CASE WHEN status = '{LEFT_OVER}' THEN NULL
    WHEN lag IS NULL AND committed_offset IS NULL AND log_end_offset = log_start_offset THEN 0 ELSE lag END AS lag,
  log_start_offset IS NULL AND lag IS NOT NULL AS lasts
FROM lag_history WHERE {{where}}
"""  # noqa: S608 - our own constants
_NEWEST = f"""
SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY topic, partition ORDER BY at DESC) AS number
  FROM ({_SAMPLES}) AS samples) AS ranked WHERE number = 1
"""  # noqa: S608 - as above
_SPANS = """
samples AS ({before} UNION ALL {within}),
followed AS (SELECT *, lead(at) OVER (PARTITION BY topic, partition ORDER BY at) AS next FROM samples),
ended AS (
  SELECT f.*, CASE WHEN next IS NOT NULL OR now.topic IS NOT NULL THEN next ELSE at + {lasts} END AS gone,
    CASE WHEN next IS NULL AND now.known_until IS NOT NULL
      THEN least(at + {lasts}, greatest(at, now.known_until) + {pause}) ELSE at + {lasts} END AS holds
  FROM followed f LEFT JOIN (
    SELECT topic, partition, CAST(known_until AS BIGINT) AS known_until FROM lag WHERE {where}) AS now
    ON now.topic = f.topic AND now.partition = f.partition),
spans AS (
  SELECT topic, partition, at AS since, greatest(at, {begin}) AS at, lag, lag_seconds, lag_seconds_is_lower_bound,
    is_read, gone, CASE WHEN lag IS NULL THEN NULL WHEN gone <= holds OR lasts THEN gone ELSE holds END AS until
  FROM ended)
"""
_SUMS = """
WITH {spans},
changes AS (
  SELECT at, lag, CASE WHEN lag IS NULL THEN 0 ELSE 1 END AS known, CASE WHEN is_read THEN 1 ELSE 0 END AS all_of
  FROM spans
  UNION ALL SELECT greatest(until, {begin}), -lag, -1, 0 FROM spans WHERE until IS NOT NULL
  UNION ALL SELECT greatest(gone, {begin}), NULL, 0, -1 FROM spans WHERE gone IS NOT NULL AND is_read),
by_time AS (
  SELECT at, sum(lag) AS lag, sum(known) AS known, sum(all_of) AS all_of FROM changes WHERE at < {end} GROUP BY at),
running AS (
  SELECT at, CAST(floor((at - {begin}) / {width}) AS BIGINT) AS bin, sum(coalesce(lag, 0)) OVER times AS lag,
    sum(known) OVER times AS known, sum(all_of) OVER times AS all_of
  FROM by_time WINDOW times AS (ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
SELECT bin, last_value(lag ORDER BY at) AS lag, last_value(known ORDER BY at) AS known,
  last_value(all_of ORDER BY at) AS all_of, min(CASE WHEN known > 0 THEN lag END) AS least,
  max(CASE WHEN known > 0 THEN lag END) AS most, max(all_of - known) AS unknown, min(at) AS first
FROM running GROUP BY bin ORDER BY bin
"""


class LagBin(NamedTuple):
    """The lag of a group in a part of the time, summed over the partitions of which it was known."""

    begin: datetime
    end: datetime
    lag: int | None
    """At the end; None if it was known of no partition then."""
    least: int | None
    most: int | None
    """At any moment of it; None if it was never known."""
    unknown: int
    """Of how many partitions it was not known, at the moment with the most of them: then the sum is a lower bound."""
    unknown_at_end: int


def lag_series(  # noqa: PLR0913 - a group of a cluster, a time, and how closely
    reader: WarehouseReader, cluster: str, group_id: str, begin: datetime, end: datetime, *, bins: int = BINS
) -> list[LagBin]:
    """Return the bins from `begin` to `end`, all of one length, the oldest first; none without a sample before `end`.

    Raises WarehouseError.
    """
    first, last = microseconds(begin), microseconds(end)
    spans = spans_sql(cluster, group_id, begin, end)
    rows = reader.rows(_SUMS.format(spans=spans, begin=first, end=last, width=repr((last - first) / bins)))
    changed, length, found = {row["bin"]: row for row in rows}, (end - begin) / bins, list[LagBin]()
    for number in range(bins if rows else 0):
        at = begin + number * length
        found.append(_bin(found[-1] if found else None, changed.get(number), at, at + length))
    return found


def spans_sql(cluster: str, group_id: str, begin: datetime, end: datetime) -> str:
    """Return the common table expressions of which `spans` has for how long each sample holds, in microseconds.

    `at` is `since`, when it was taken, or `begin`. The lag is known up to `until`, and if that is null and `lag` is
    not, it still is; up to `gone` the partition is there, and if that is null, it still is.
    """
    names = "topic, partition, at, lag, lag_seconds, lag_seconds_is_lower_bound, is_read, lasts"
    where = of_group(cluster, group_id)
    # What has a later sample is not gone.
    begins, ends = time_literal(begin), time_literal(end + SAMPLE_LASTS)
    before = _NEWEST.format(where=f"{where} AND observed_at <= {begins}")
    within = _SAMPLES.format(where=f"{where} AND observed_at > {begins} AND observed_at < {ends}")
    return _SPANS.format(
        before=f"SELECT {names} FROM ({before}) AS newest",  # noqa: S608 - quoted
        within=f"SELECT {names} FROM ({within}) AS newer",  # noqa: S608 - quoted
        where=where,
        lasts=_LASTS,
        pause=_PAUSE,
        begin=microseconds(begin),
    )


def microseconds(time: datetime) -> int:
    """Return a time as the queries of this module compare it."""
    return (time - EPOCH) // _MICROSECOND


def _bin(before: LagBin | None, row: Mapping[str, Any] | None, begin: datetime, end: datetime) -> LagBin:
    """Return a bin from what changed in it, and the one before, whose end lasts until the first change."""
    lag, unknown = (before.lag, before.unknown_at_end) if before else (None, 0)
    if row is None:
        return LagBin(begin, end, lag, lag, lag, unknown, unknown)
    if row["first"] <= microseconds(begin):
        lag, unknown = None, 0
    known = [one for one in (lag, row["least"], row["most"]) if one is not None]
    return LagBin(
        begin,
        end,
        row["lag"] if row["known"] else None,
        min(known, default=None),
        max(known, default=None),
        max(unknown, row["unknown"]),
        row["all_of"] - row["known"],
    )


def lag_at(reader: WarehouseReader, cluster: str, group_id: str, at: datetime) -> list[dict[str, Any]]:
    """Return the lag of each partition of a group at a time: rows with the columns of `lag_history`.

    `lag`, `lag_seconds` and `status` are None where they were not known. Raises WarehouseError.
    """
    where = f"{of_group(cluster, group_id)} AND observed_at <= {time_literal(at)}"
    rows = reader.rows(_NEWEST.format(where=where))
    for row in rows:
        if not row["lasts"] and row["observed_at"] + SAMPLE_LASTS < at:
            row["lag"] = row["lag_seconds"] = row["status"] = None
    return [row for row in rows if row["is_read"]]

"""How far behind a group and its tasks were over time, in seconds, from `lag_history`.

A sample says how old the first record was that was not committed. Until the next one of its partition that record gets
older: of a partition at rest there is only one sample an hour, and a task that stands still must not look as if it
kept up. So between two samples this is the most that it was, and at a sample, and where nothing moves, it is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streaming_app.queries.lag_series import microseconds, spans_sql
from streaming_app.tables.reader import WarehouseReader, of_group

BINS = 120
"""Parts of the time that `behind_series` tells apart."""

_SECOND = 1_000_000
_SERIES = """
WITH {spans},
own AS (
  SELECT topic, partition, at AS begins, since, lag, lag_seconds_is_lower_bound AS is_lower,
    CASE WHEN lag = 0 THEN 0.0 ELSE lag_seconds END AS seconds,
    least(coalesce(until, {end}), {end}) AS until, least(coalesce(gone, {end}), {end}) AS gone
  FROM spans WHERE is_read AND at < {end}),
times AS (
  SELECT topic, partition, begins AS at, until AS ends, since, seconds, lag > 0 AS grows,
    coalesce(is_lower, false) AS is_lower
  FROM own WHERE seconds IS NOT NULL AND begins < until
  UNION ALL
  SELECT topic, partition, CASE WHEN seconds IS NULL THEN begins ELSE until END AS at, gone AS ends, since,
    CAST(NULL AS DOUBLE) AS seconds, false AS grows, true AS is_lower
  FROM own WHERE (CASE WHEN seconds IS NULL THEN begins ELSE until END) < gone),
parts AS (
  SELECT *, unnest(range(CAST(floor((at - {begin}) / {width}) AS BIGINT),
    CAST(floor((ends - 1 - {begin}) / {width}) AS BIGINT) + 1)) AS bin
  FROM times),
cut AS (
  SELECT *, greatest(at, {begin} + bin * {width}) AS first, least(ends, {begin} + (bin + 1) * {width}) AS last
  FROM parts),
cells AS (
  SELECT topic, partition, bin, bool_or(is_lower) AS is_lower,
    max(seconds + CASE WHEN grows THEN (last - since) / {second} ELSE 0 END) AS most,
    min(seconds + CASE WHEN grows THEN (first - since) / {second} ELSE 0 END) AS least,
    sum(CASE WHEN seconds IS NULL THEN 0 ELSE last - first END) AS known,
    max(CASE WHEN last >= {begin} + (bin + 1) * {width} - 1
      THEN seconds + CASE WHEN grows THEN (last - since) / {second} ELSE 0 END END) AS at_end
  FROM cut GROUP BY topic, partition, bin)
SELECT task_id, bin, max(most) AS most, max(at_end) AS at_end, bool_or(is_lower) AS is_lower,
  max(CASE WHEN known >= {width} - 2 THEN least ELSE 0 END) AS least
FROM cells LEFT JOIN (SELECT topic AS of, partition AS number, task_id FROM lag WHERE {where}) AS now
  ON now.of = topic AND now.number = partition
GROUP BY task_id, bin
"""


class Behind(NamedTuple):
    """How far behind a group or a task was in a part of the time: that of its partition that was furthest behind."""

    at_end: float | None
    """In seconds; None if it was known of no partition then."""
    least: float
    """It was never less, whenever it was known."""
    most: float | None
    """It was never more; None if it was never known."""
    is_lower_bound: bool
    """Of some partition it was not known for a part of it, or only that it was at least so much."""


class BehindSeries(NamedTuple):
    """Of a group and the tasks that are furthest behind, by the number of the bin from 0, where anything is known."""

    bins: int
    group: Mapping[int, Behind]
    tasks: Mapping[str, Mapping[int, Behind]]
    """The task that is furthest behind at the end first, and of those that are equal the one that was at any time."""
    more_tasks: int
    """How many there are besides."""


def behind_series(  # noqa: PLR0913 - a group of a cluster, a time, how closely, and how many tasks
    reader: WarehouseReader,
    cluster: str,
    group_id: str,
    begin: datetime,
    end: datetime,
    *,
    bins: int = BINS,
    tasks: int = 20,
    with_tasks: frozenset[str] = frozenset(),
) -> BehindSeries | None:
    """Return the series from `begin` to `end`, with so many tasks, and those of `with_tasks` besides.

    None if nothing is known of this time. Raises WarehouseError.
    """
    first, last = microseconds(begin), microseconds(end)
    found = reader.query(
        _SERIES.format(
            spans=spans_sql(cluster, group_id, begin, end),
            where=of_group(cluster, group_id),
            begin=first,
            end=last,
            width=repr((last - first) / bins),
            second=repr(float(_SECOND)),
        )
    )
    if not found.num_rows:
        return None
    found = found.set_column(0, "task_id", found["task_id"].cast(pa.string()))  # views have no kernels
    ranked = _ranked(found, bins)
    chosen = [*(one for one in ranked if one in with_tasks), *(one for one in ranked if one not in with_tasks)]
    chosen = chosen[: max(tasks, len(with_tasks.intersection(ranked)))]
    by_task: dict[str, dict[int, Behind]] = {one: {} for one in ranked if one in chosen}
    for row in found.filter(pc.is_in(found["task_id"], pa.array(chosen, pa.string()))).to_pylist():
        by_task[row["task_id"]][row["bin"]] = _behind(row)
    columns = [("most", "max"), ("at_end", "max"), ("least", "max"), ("is_lower", "any")]
    by_bin = found.group_by("bin").aggregate(columns).rename_columns(["bin", *(name for name, _ in columns)])
    group = {row["bin"]: _behind(row) for row in by_bin.to_pylist()}
    return BehindSeries(bins, group, by_task, len(ranked) - len(chosen))


def _ranked(found: pa.Table, bins: int) -> list[str]:
    """Return the tasks, the one that is furthest behind first."""
    named = found.filter(pc.is_valid(found["task_id"]))
    ends = named.filter(pc.equal(named["bin"], bins - 1))
    at_end = {row["task_id"]: row["at_end"] or 0.0 for row in ends.select(["task_id", "at_end"]).to_pylist()}
    most = named.group_by("task_id").aggregate([("most", "max")]).to_pylist()
    keys = [(-at_end.get(row["task_id"], 0.0), -(row["most_max"] or 0.0), row["task_id"]) for row in most]
    return [task_id for _, _, task_id in sorted(keys)]


def _behind(row: Mapping[str, Any]) -> Behind:
    return Behind(row["at_end"], row["least"], row["most"], bool(row["is_lower"]))

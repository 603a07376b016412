"""How many records a second were produced for a group, and how many it committed, over time, from `lag_history`.

Both are differences of offsets, which transactions and compaction leave gaps in. Between two samples of a partition
they are spread evenly. A partition without two samples at most an hour and a half apart counts as not known.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from streaming_app.lag.status import LEFT_OVER
from streaming_app.queries.behind_series import BINS
from streaming_app.queries.lag_series import SAMPLE_LASTS, microseconds
from streaming_app.tables.reader import WarehouseReader, of_group, time_literal

_RATES = """
WITH points AS (
  SELECT topic, partition, CAST(observed_at AS BIGINT) AS at, committed_offset AS committed,
    log_end_offset AS ends, status
  FROM lag_history WHERE {where} AND observed_at > {since} AND observed_at < {until}
  UNION ALL
  SELECT topic, partition, CAST(max(observed_at) AS BIGINT), NULL, NULL, last_value(status ORDER BY observed_at)
  FROM lag_history WHERE {where} AND observed_at <= {since} GROUP BY topic, partition
  UNION ALL
  SELECT topic, partition, CAST(coalesce(known_until, observed_at) AS BIGINT), committed_offset, log_end_offset, status
  FROM lag WHERE {where}),
pairs AS (
  SELECT *, lead(at) OVER times AS next, lead(committed) OVER times - committed AS done,
    lead(ends) OVER times - ends AS new
  FROM points WINDOW times AS (PARTITION BY topic, partition ORDER BY at)),
own AS (
  SELECT *, coalesce(next - at <= {lasts} AND new >= 0, false) AS is_known,
    greatest(at, {begin}) AS first, least(next, {end}) AS last
  FROM pairs WHERE next > at AND next > {begin} AND at < {end} AND status <> '{left_over}'),
parts AS (
  SELECT *, unnest(range(CAST(floor((first - {begin}) / {width}) AS BIGINT),
    CAST(floor((last - 1 - {begin}) / {width}) AS BIGINT) + 1)) AS bin
  FROM own WHERE first < last),
shares AS (
  SELECT *, (least(last, {begin} + (bin + 1) * {width}) - greatest(first, {begin} + bin * {width})) AS length
  FROM parts),
by_partition AS (
  SELECT topic, partition, bin, bool_or(NOT is_known) AS is_partial,
    sum(CASE WHEN is_known THEN length END) AS length,
    sum(CASE WHEN is_known THEN new * length / (next - at) END) AS new,
    sum(CASE WHEN is_known THEN greatest(coalesce(done, 0), 0) * length / (next - at) END) AS done
  FROM shares GROUP BY topic, partition, bin)
SELECT bin, sum(1e6 * new / length) AS produced, sum(1e6 * done / length) AS committed,
  bool_or(is_partial) AS is_partial
FROM by_partition GROUP BY bin HAVING sum(length) > 0 ORDER BY bin
"""


class Rate(NamedTuple):
    """Offsets a second in a part of the time, summed over the partitions of which they are known."""

    produced: float
    committed: float
    is_partial: bool
    """Of some partitions they are not known."""


def rate_series(  # noqa: PLR0913 - a group of a cluster, a time, and how closely
    reader: WarehouseReader, cluster: str, group_id: str, begin: datetime, end: datetime, *, bins: int = BINS
) -> dict[int, Rate]:
    """Return the rates from `begin` to `end` by the number of the bin, from 0, where any is known.

    Raises WarehouseError.
    """
    first, last = microseconds(begin), microseconds(end)
    rows = reader.rows(
        _RATES.format(
            where=of_group(cluster, group_id),
            since=time_literal(begin - SAMPLE_LASTS),
            until=time_literal(end + SAMPLE_LASTS),
            begin=first,
            end=last,
            width=repr((last - first) / bins),
            lasts=SAMPLE_LASTS.total_seconds() * 1e6,
            left_over=LEFT_OVER,
        )
    )
    return {row["bin"]: Rate(row["produced"], row["committed"], row["is_partial"]) for row in rows}

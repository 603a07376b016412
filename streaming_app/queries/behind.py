"""From `lag_history`: how many seconds a group was behind over time, and the lag of its partitions at an instant.

A row of `lag_history` holds until the next row of its partition, and for at most `SAMPLE_LASTS`. The job writes a row
an hour even if nothing changes, so a longer gap means that it did not know the lag. Rows of earlier releases have no
`log_start_offset`; they hold until the next row. The last row holds as long as the lag in `lag` is known. A partition
without a row in `lag` is gone after its last row.

A row has the age of the oldest record that was not committed. Until the next row this age grows with the time, since a
group that stands still must not look as if it kept up. So between two rows the value is an upper bound. It is exact at
a row, and where nothing moves.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from streaming_app.lag.model import HISTORY_REST_SECONDS
from streaming_app.lag.statuses import LEFT_OVER
from streaming_app.queries.lag import LagsBy, to_lags
from streaming_app.tables.definitions import sums_sql
from streaming_app.tables.reader import Row, WarehouseReader, of_group, time_literal
from streaming_app.text import EPOCH

SAMPLE_LASTS = timedelta(seconds=1.5 * HISTORY_REST_SECONDS)
BINS = 120
"""The number of parts into which `behind_series` divides the time."""

_MICROSECOND = timedelta(microseconds=1)
_LASTS, _PAUSE = SAMPLE_LASTS // _MICROSECOND, timedelta(minutes=2) // _MICROSECOND
_STATUS = "coalesce(offset_status, status)"  # the second one is of releases before 0.4.0
_SAMPLES = f"""
SELECT topic, partition, committed_offset, log_end_offset, {_STATUS} AS offset_status,
  CAST(observed_at AS BIGINT) AS at,
  lag_seconds, lag_seconds_is_lower_bound, observed_at,
  {_STATUS} <> '{LEFT_OVER}' AS is_read,
  CASE WHEN {_STATUS} = '{LEFT_OVER}' THEN NULL
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
  SELECT *, least(ends, {begin} + (bin + 1) * {width}) AS last FROM parts)
SELECT bin, max(seconds + CASE WHEN grows THEN (last - since) / 1e6 ELSE 0 END) AS most, bool_or(is_lower) AS is_lower,
  max(CASE WHEN NOT grows OR since >= {begin} + bin * {width} THEN seconds END) AS measured
FROM cut GROUP BY bin
"""
_AT = """
SELECT topic, partition, task_id, committed_offset, log_end_offset, lag_seconds_is_lower_bound, observed_at,
  CASE WHEN holds THEN lag END AS lag, CASE WHEN holds THEN lag_seconds END AS lag_seconds,
  CASE WHEN holds THEN offset_status END AS offset_status, NOT holds OR lag IS NULL AS is_unknown,
  CAST(NULL AS timestamp) AS known_until, CAST(NULL AS timestamp) AS partition_time
FROM (
  SELECT past.*, now.task_id, lasts OR at + {lasts} >= {at} AS holds FROM ({newest}) AS past
  LEFT JOIN (SELECT topic, partition, task_id FROM lag WHERE {where}) AS now
    ON now.topic = past.topic AND now.partition = past.partition) AS held
WHERE is_read
"""


def behind_series(  # noqa: PLR0913 - a group of a cluster, a time, and how closely
    reader: WarehouseReader, cluster: str, group_id: str, begin: datetime, end: datetime, *, bins: int = BINS
) -> Mapping[int, Row]:
    """Return how far behind the furthest partition was in each part of a time, by number from 0, unless there is none.

    `measured` is the largest value at a row, in seconds, and `most` the largest that it may have been; None if none was
    known. `is_lower`: at some time the value of some partition was unknown, or only a lower bound was known. Raises
    WarehouseError.
    """
    first, last, where = _microseconds(begin), _microseconds(end), of_group(cluster, group_id)
    width = repr((last - first) / bins)
    rows = reader.rows(_SERIES.format(spans=_spans(where, begin, end), begin=first, end=last, width=width))
    return {row["bin"]: row for row in rows}


def _spans(where: str, begin: datetime, end: datetime) -> str:
    """Return common table expressions; `spans` has the time for which each row holds, in microseconds.

    `since` is the time at which the row was written; `at` is the same, or `begin` if that is later. The lag is known up
    to `until`; if `until` is null and `lag` is not, the lag is still known. The partition exists up to `gone`; null: it
    still exists.
    """
    names = "topic, partition, at, lag, lag_seconds, lag_seconds_is_lower_bound, is_read, lasts"
    begins, ends = time_literal(begin), time_literal(end + SAMPLE_LASTS)  # a partition with a later row is not gone
    before = _NEWEST.format(where=f"{where} AND observed_at <= {begins}")
    within = _SAMPLES.format(where=f"{where} AND observed_at > {begins} AND observed_at < {ends}")
    return _SPANS.format(
        before=f"SELECT {names} FROM ({before}) AS newest",  # noqa: S608 - quoted
        within=f"SELECT {names} FROM ({within}) AS newer",  # noqa: S608 - quoted
        where=where,
        lasts=_LASTS,
        pause=_PAUSE,
        begin=_microseconds(begin),
    )


def _microseconds(time: datetime) -> int:
    return (time - EPOCH) // _MICROSECOND


def lag_at(reader: WarehouseReader, cluster: str, group_id: str, at: datetime) -> list[Row]:
    """Return the lag of each partition of a group at a time, as rows with columns of `lag`, the largest first.

    `lag`, `lag_seconds` and `offset_status` are None if they were not known. `task_id` is that of now.

    Raises WarehouseError.
    """
    return reader.rows(f"{_at(cluster, group_id, at)} ORDER BY lag DESC NULLS LAST, topic, partition")


def lags_at(reader: WarehouseReader, cluster: str, group_id: str, at: datetime) -> LagsBy:
    """Return the sums of these rows by task and by topic. Raises WarehouseError."""
    keys = {"task_id": "task_id, CAST(NULL AS string) AS topic", "topic": "CAST(NULL AS string) AS task_id, topic"}
    rows = _at(cluster, group_id, at)
    sums = (sums_sql("lag", [key], f"{key} IS NOT NULL", [shown], rows) for key, shown in keys.items())
    return to_lags(reader.rows(" UNION ALL ".join(sums)))


def _at(cluster: str, group_id: str, at: datetime) -> str:
    own = of_group(cluster, group_id)
    newest = _NEWEST.format(where=f"{own} AND observed_at <= {time_literal(at)}")
    return _AT.format(newest=newest, where=own, at=_microseconds(at), lasts=_LASTS)

"""Moves the verdicts of 0.3, which had a table of their own, to the ends of their histories.

There `group_health` was a table with the newest verdict of each group, and the history had less columns. Now it is a
view of the newest row of each group. So each of its rows becomes the newest one in the history; a group without such a
row was deleted, and its history gets an end. A row of this release has `judged_at`: a group with one is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import TableNotFoundError

from streaming_app.tables.arrow import to_arrow, with_plain_types
from streaming_app.tables.columns import add_columns
from streaming_app.tables.definitions import table
from streaming_app.tables.formats import is_older
from streaming_app.tables.location import Location
from streaming_app.tables.table_creation import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming_app.tables.rust_table import CommitOptions, RustTable

_OLD = "group_health"
_NEWEST = """
WITH known AS (
  SELECT cluster, group_id, max(at) + INTERVAL '1 microsecond' AS at, bool_or(judged_at IS NOT NULL) AS is_done
  FROM history GROUP BY cluster, group_id)
SELECT o.cluster, o.group_id, CASE WHEN known.at > o.judged_at THEN known.at ELSE o.judged_at END AS at, o.verdict,
  o.severity, o.since, o.why, o.evidence, o.judged_at, o.caught_up_at, o.losing_at, NULL AS pending_verdict,
  NULL AS pending_at, o.inputs_at, o.labels, false AS is_end
FROM old o LEFT JOIN known ON known.cluster = o.cluster AND known.group_id = o.group_id
WHERE NOT coalesce(known.is_done, false)
UNION ALL
SELECT known.cluster, known.group_id, known.at, 'Off' AS verdict, NULL AS severity, known.at AS since,
  'It was deleted.' AS why, NULL AS evidence, known.at AS judged_at, NULL AS caught_up_at, NULL AS losing_at,
  NULL AS pending_verdict, NULL AS pending_at, NULL AS inputs_at, NULL AS labels, true AS is_end
FROM known LEFT ANTI JOIN old o ON known.cluster = o.cluster AND known.group_id = o.group_id
WHERE NOT known.is_done
"""


def find_verdicts(history: DeltaTable) -> int:
    """Return whether there is a table of 0.3 with verdicts to move to this history: 1, or 0."""
    return int(is_older(history) and _old_table(Location.of(history.table_uri)) is not None)


def _old_table(history: Location) -> DeltaTable | None:
    try:
        return (history.parent / _OLD).delta_table()
    except TableNotFoundError:
        return None


def move_verdicts(own: RustTable, _moved: Callable[[int, int], None]) -> None:
    """Move the verdicts of all clusters in one commit; remove the old table if no other cluster writes it.

    A job of 0.3 that still runs for another cluster needs its table, and goes on; later rows of the history count.
    """
    old = _old_table(own.location)
    if old is None:
        return

    clusters = {one["cluster"] for one in pa.table(old.get_add_actions())["partition"].to_pylist()}

    def write(history: DeltaTable, commit: CommitOptions) -> None:
        query = QueryBuilder().register("old", old).register("history", history)
        found = with_plain_types(to_arrow(query.execute(_NEWEST)))
        if found.num_rows:
            write_deltalake(history, found.select(own.schema().names).cast(own.schema()), mode="append", **commit)

    add_columns(own, schema_of(table(own.location.name)))
    try:
        own.change(write)
    except OSError:
        if _old_table(own.location) is not None:  # else another job has moved all of it meanwhile
            raise
    if clusters <= {own.cluster}:
        (own.location.parent / _OLD).remove_directory()

"""Selects the rows that are kept beyond their retention: those that describe what still held when it ended.

A group that has been Stable for a year has had no event since. If its last events were deleted, nobody could query what
state it was in yesterday, or which member had a task. So of each subject (a group's state, a member's tasks, ...) the
newest of the expired events is kept, unless it describes an end; for a group whose row was deleted none is kept. For
the same reason the newest of the expired topologies of a group is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SUBJECTS = {"member_joined": "member", "member_left": "member", "created": "group", "deleted": "group"}
"""Kinds of events that share a subject; every other kind is a subject by itself."""
_STATELESS = ("unsolicited_push",)
"""Kinds of events that change no state."""


def select_events_to_keep(expired: DataFrame, groups: DataFrame) -> DataFrame:
    """Return those of the `expired` events whose state held to the end of the retention; `groups` are the kept rows."""
    from pyspark.sql import Window  # noqa: PLC0415 - only the job loads Spark
    from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

    subject = F.col("kind")
    for kind, shared in _SUBJECTS.items():
        subject = F.when(F.col("kind") == kind, shared).otherwise(subject)
    newest = Window.partitionBy("cluster", "group_id", subject, "member_id").orderBy(F.desc("at"), F.desc("offset"))
    ranked = expired.where(~F.col("kind").isin(*_STATELESS)).withColumn("_rank", F.row_number().over(newest))
    return _of_groups(ranked.where("_rank = 1 AND new IS NOT NULL"), groups).select(*expired.columns)


def select_topologies_to_keep(expired: DataFrame, groups: DataFrame) -> DataFrame:
    """Return the newest of the `expired` topologies of each group; `groups` are the kept rows."""
    from pyspark.sql import Window  # noqa: PLC0415 - as above
    from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

    newest = Window.partitionBy("cluster", "group_id").orderBy(F.desc("first_seen_at"), F.desc("offset"))
    ranked = expired.withColumn("_rank", F.row_number().over(newest))
    return _of_groups(ranked.where("_rank = 1"), groups).select(*expired.columns)


def _of_groups(rows: DataFrame, groups: DataFrame) -> DataFrame:
    return rows.join(groups.select("cluster", "group_id"), ["cluster", "group_id"], "left_semi")


SELECT_ROWS_TO_KEEP: Mapping[str, Callable[[DataFrame, DataFrame], DataFrame]] = {
    "group_events": select_events_to_keep,
    "topologies": select_topologies_to_keep,
}
"""By table; the expired rows of any other table are all deleted."""

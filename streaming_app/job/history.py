"""Which events outlive their retention: those that told what was still so when it ended.

A group that has been Stable for a year has had no event since. Were its last ones dropped, nobody could ask what it
was yesterday, or who had a task. So of each thing (a group's state, a member's tasks, ...) the newest of the old events
stays, unless it tells of an end; of a group whose row is gone none does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SUBJECTS = {"member_joined": "member", "member_left": "member", "created": "group", "deleted": "group"}
"""Kinds of events that are of one thing; each other kind is one of its own."""
_INSTANTS = ("unsolicited_push",)
"""Kinds after which nothing is otherwise than before."""


def standing(old: DataFrame, groups: DataFrame) -> DataFrame:
    """Of the `old` events, those that still told at the end of their time what was so; `groups` are the rows kept."""
    from pyspark.sql import Window  # noqa: PLC0415 - Spark is loaded by those who need it
    from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

    subject = F.col("kind")
    for kind, of in _SUBJECTS.items():
        subject = F.when(F.col("kind") == kind, of).otherwise(subject)
    newest = Window.partitionBy("cluster", "group_id", subject, "member_id").orderBy(F.desc("at"), F.desc("offset"))
    lasting = old.where(~F.col("kind").isin(*_INSTANTS)).withColumn("_rank", F.row_number().over(newest))
    return (
        lasting.where("_rank = 1 AND new IS NOT NULL")
        .drop("_rank")
        .join(groups.select("cluster", "group_id"), ["cluster", "group_id"], "left_semi")
        .select(*old.columns)
    )

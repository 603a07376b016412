"""Names and text of others in the SQL that is passed to Spark, how it divides what it sorts, and what it persists."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import StorageLevel
    from pyspark.sql import DataFrame, SparkSession

# Group ids are in some of this SQL, and whoever may join a group chooses its id. Spark would replace `${...}` in it by
# settings, and with the second setting would not understand `literal`.
SQL_TEXT_CONF = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
}


def identifier(name: object) -> str:
    """Return `name` as an identifier."""
    escaped = str(name).replace("`", "``")
    return f"`{escaped}`"


def literal(text: str) -> str:
    """Return `text` as a string literal of Spark SQL, for a session with `SQL_TEXT_CONF`."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def sorted_parts(spark: SparkSession, rows: int, most: int) -> int:
    """Return into how many parts to divide so many rows that are sorted: no part has many more than `most` of them.

    A task sorts the whole of its part in the heap. As many parts as there are cores, which is the setting of this job's
    own session, took more than a third of the heap at a catch-up of 30,000 groups.
    """
    return max(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), -(-rows // most))


_PERSIST_CONF = {
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}


def persist(rows: DataFrame, level: StorageLevel | None = None) -> DataFrame:
    """Return the rows, which Spark keeps once they are read, by default in memory as far as there is room.

    With other settings Spark clones the session for them (`CacheManager`), since a plan that it keeps may not use its
    buckets, and may not get other partitions. These rows are of no bucketed table, and nothing depends on their
    partitions. Before 4.0.2 Spark never forgets a clone (SPARK-54753), which has 0.1 MB.
    """
    for name, value in _PERSIST_CONF.items():
        rows.sparkSession.conf.set(name, value)
    return rows.persist() if level is None else rows.persist(level)

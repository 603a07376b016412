"""Names and text of others in the SQL that is passed to Spark, and into how many parts Spark divides what it sorts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

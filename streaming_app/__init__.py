"""The job, the tables and the commands of streams-groups.

`open_warehouse` is for programs that have their own Spark session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import table_definitions  # its function `tables` would be replaced by the package `streaming_app.tables`

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_warehouse"]


def open_warehouse(spark: SparkSession, path: str) -> None:
    """Register every table and view of the warehouse at `path` as temporary views of `spark`, for Spark SQL.

    The session needs Delta Lake: `spark.sql.extensions` = io.delta.sql.DeltaSparkSessionExtension and
    `spark.sql.catalog.spark_catalog` = org.apache.spark.sql.delta.catalog.DeltaCatalog. Views always show the newest
    state; for an older one read ``delta.`PATH/groups` TIMESTAMP AS OF ...``. Raises pyspark's AnalysisException if
    there is no warehouse at `path`.
    """
    for definition in table_definitions.tables():
        location = f"{str(path).rstrip('/')}/{definition.name}"
        spark.sql(f"SELECT * FROM delta.`{location}`").createOrReplaceTempView(definition.name)  # noqa: S608
    for view in table_definitions.views():
        spark.sql(table_definitions.view_sql(view, "explode")).createOrReplaceTempView(view.name)

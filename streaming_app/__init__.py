"""The job, the tables and the commands of streams-groups.

Public is what this module exports: `query` is for programs without Spark, `open_warehouse` for programs that have their
own Spark session. All modules below are private, and may change with any release. Spark's workers import this module:
it loads nothing before a function is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["open_warehouse", "query"]


def query(place: str | os.PathLike[str], sql: str) -> pa.Table:
    """Return the result of a query on the tables and views of the warehouse at `place`, without Spark.

    `place` is a directory or the URI of an object store, `sql` is in DataFusion's dialect. The tables are read as they
    are now, all at once, so the result fits the memory. Its types are those that pandas, polars and DuckDB read. Raises
    `streaming_app.errors.WarehouseError` if there is no warehouse or the query fails.
    """
    from streaming_app.errors import WarehouseError  # noqa: PLC0415 - see above
    from streaming_app.tables.arrow import with_plain_types  # noqa: PLC0415
    from streaming_app.tables.location import Location  # noqa: PLC0415
    from streaming_app.tables.reader import WarehouseReader  # noqa: PLC0415

    try:
        location = Location.of(str(place))
    except ValueError as error:
        raise WarehouseError(str(error)) from None
    return with_plain_types(WarehouseReader(location).query(sql))


def open_warehouse(spark: SparkSession, path: str | os.PathLike[str]) -> None:
    """Register every table and view of the warehouse at `path` as temporary views of `spark`, for Spark SQL.

    The session needs Delta Lake: `spark.sql.extensions` = io.delta.sql.DeltaSparkSessionExtension,
    `spark.sql.catalog.spark_catalog` = org.apache.spark.sql.delta.catalog.DeltaCatalog, and its jar. Views always show
    the newest state; for an older one read ``delta.`PATH/groups` TIMESTAMP AS OF ...``. It sets
    `spark.databricks.delta.snapshotPartitions` to 2, unless it has another value than Delta's default. Raises
    `streaming_app.errors.WarehouseError` if the session lacks Delta Lake, pyspark's AnalysisException if there is no
    warehouse at `path`.
    """
    from streaming_app.tables import spark_views  # noqa: PLC0415

    spark_views.open_warehouse(spark, path)

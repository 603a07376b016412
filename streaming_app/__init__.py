"""The job, the tables and the commands of streams-groups.

`query` is for programs without Spark, `open_warehouse` for programs that have their own Spark session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import table_definitions  # its function `tables` would be replaced by the package `streaming_app.tables`

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["open_warehouse", "query"]

_EXTENSIONS = ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
_CATALOG = ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
_MISSING_JAR = ("DATA_SOURCE_NOT_FOUND", "org.apache.spark.sql.delta", "io.delta")
# Delta reads the log of a table with 50 tasks by default, each time it has changed; the tables are small.
_SNAPSHOT_PARTITIONS, _DEFAULT, _FEW = "spark.databricks.delta.snapshotPartitions", "50", "2"


def query(place: str | os.PathLike[str], sql: str) -> pa.Table:
    """Return the result of a query on the tables and views of the warehouse at `place`, without Spark.

    `place` is a directory or the URI of an object store, `sql` is in DataFusion's dialect. The tables are read as they
    are now, all at once, so the result fits the memory. Its types are those that pandas, polars and DuckDB read. Raises
    `streaming_app.errors.WarehouseError` if there is no warehouse or the query fails.
    """
    from streaming_app.errors import WarehouseError  # noqa: PLC0415 - Spark's workers import this module
    from streaming_app.tables.location import Location  # noqa: PLC0415
    from streaming_app.tables.reader import WarehouseReader, with_plain_types  # noqa: PLC0415

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
    _require_delta(spark)
    if spark.conf.get(_SNAPSHOT_PARTITIONS, _DEFAULT) == _DEFAULT:
        spark.conf.set(_SNAPSHOT_PARTITIONS, _FEW)
    for definition in table_definitions.tables():
        location = f"{str(path).rstrip('/')}/{definition.name}"
        try:
            rows = spark.sql(f"SELECT * FROM delta.`{location}`")  # noqa: S608 - a path
        except Exception as error:  # noqa: BLE001 - those of pyspark and py4j have no common base class
            raise _without_jar(error) or error from None
        rows.createOrReplaceTempView(definition.name)
    for view in table_definitions.views():
        select = table_definitions.view_sql(view, "explode")
        spark.sql(_create_view(view, select, spark.sql(select).columns))


def _create_view(view: table_definitions.Table, select: str, names: Sequence[str]) -> str:
    """Return the statement that creates a view of a query with columns of these `names`, with a comment for each."""
    abouts = {column.name: column.about for column in view.columns}
    columns = ", ".join(f"`{name}` COMMENT {_literal(abouts.get(name) or f'As in {view.view_of}.')}" for name in names)
    return f"CREATE OR REPLACE TEMPORARY VIEW {view.name} ({columns}) COMMENT {_literal(view.about)} AS {select}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _require_delta(spark: SparkSession) -> None:
    from streaming_app.errors import WarehouseError  # noqa: PLC0415 - Spark's workers import this module

    missing = [
        f"{name} = {value}" for name, value in (_EXTENSIONS, _CATALOG) if value not in (spark.conf.get(name, "") or "")
    ]
    if missing:
        raise WarehouseError(
            f"The Spark session has no Delta Lake: it lacks {' and '.join(missing)}, which can only be set when the "
            "session is created; see docs/tables.md"
        )


def _without_jar(error: Exception) -> Exception | None:
    """Return the error about a class path without Delta's jar, if that is the reason of an error of Spark."""
    from streaming_app.errors import WarehouseError  # noqa: PLC0415 - as above

    text = str(error)
    if not any(word in text for word in _MISSING_JAR[:1]) and not (
        "ClassNotFoundException" in text and any(word in text for word in _MISSING_JAR[1:])
    ):
        return None
    return WarehouseError(
        "The Spark session has no Delta Lake: its jar is not on the class path; create the session with "
        "delta.configure_spark_with_delta_pip(builder), see docs/tables.md"
    )

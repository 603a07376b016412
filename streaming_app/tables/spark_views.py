"""Registers the tables and views of a warehouse in a user's Spark session: `open_warehouse`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streaming_app.errors import WarehouseError
from streaming_app.tables.definitions import Table, read_sql, tables, view_sql, views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
_CATALOG = ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
_MISSING_JAR = re.compile(
    r"DATA_SOURCE_NOT_FOUND|ClassNotFoundException.*(org.apache.spark.sql.delta|io.delta)", re.DOTALL
)
# By default Delta reads the log of a table with 50 tasks, each time it has changed. The tables are small.
_SNAPSHOT_PARTITIONS, _DEFAULT, _FEW = "spark.databricks.delta.snapshotPartitions", "50", "2"


def open_warehouse(spark: SparkSession, path: str | os.PathLike[str]) -> None:
    """See `streaming_app.open_warehouse`."""
    require_delta(spark)
    if spark.conf.get(_SNAPSHOT_PARTITIONS, _DEFAULT) == _DEFAULT:
        spark.conf.set(_SNAPSHOT_PARTITIONS, _FEW)
    for definition in sorted(tables(), key=lambda one: bool(one.computed)):
        location = f"{str(path).rstrip('/')}/{definition.name}"
        select = read_sql(definition, f"delta.`{location}`")
        try:
            rows = spark.sql(select)
        except Exception as error:
            if not _MISSING_JAR.search(str(error)):
                raise
            raise WarehouseError(
                "The Spark session has no Delta Lake: its jar is not on the class path; create the session with "
                "delta.configure_spark_with_delta_pip(builder), see docs/tables.md"
            ) from None
        if definition.computed:
            spark.sql(_create_view(definition, select, rows.columns))
        else:
            rows.createOrReplaceTempView(definition.name)
    for view in views():
        select = view_sql(view, "explode")
        spark.sql(_create_view(view, select, spark.sql(select).columns))


def _create_view(view: Table, select: str, names: Sequence[str]) -> str:
    """Return the statement that creates a view of a query whose columns are `names`, with a comment for each."""
    abouts = {column.name: column.about for column in (*view.columns, *view.computed)}
    columns = ", ".join(f"`{name}` COMMENT {_literal(abouts.get(name) or f'As in {view.view_of}.')}" for name in names)
    return f"CREATE OR REPLACE TEMPORARY VIEW {view.name} ({columns}) COMMENT {_literal(view.about)} AS {select}"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def require_delta(spark: SparkSession) -> None:
    """Raise WarehouseError if Delta Lake was not configured when the session was created."""
    missing = [
        f"{name} = {value}" for name, value in (_EXTENSIONS, _CATALOG) if value not in (spark.conf.get(name, "") or "")
    ]
    if missing:
        raise WarehouseError(
            f"The Spark session has no Delta Lake: it lacks {' and '.join(missing)}, which can only be set when the "
            "session is created; see docs/tables.md"
        )

"""The job, the tables and the commands of streams-groups.

Public is what this module exports: `query` is for programs without Spark, `run` and `open_warehouse` for programs that
have their own Spark session. All modules below are private, and may change with any release. Spark's workers import
this module: it loads nothing but the errors before a function is called.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from streaming_app.errors import JobError

# kafka-python loads its schemas by functions that Python has deprecated: an error under `python -W error`.
warnings.filterwarnings("ignore", category=DeprecationWarning, message=r"(read|open)_text is deprecated")

if TYPE_CHECKING:
    import os
    import threading
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["JobError", "open_warehouse", "query", "run"]


def run(  # noqa: PLR0913 - with the keys of the configuration
    spark: SparkSession,
    *,
    bootstrap_server: str,
    warehouse: str | os.PathLike[str],
    once: bool = False,
    stop: threading.Event | None = None,
    report: Callable[[str], None] = print,
    **settings: object,
) -> None:
    """Run the job in a Spark session that has the Kafka source; no other setting of it is needed.

    It returns when all available records are processed, with `once`; otherwise soon after another thread, or a signal
    handler, sets `stop`. It installs no signal handler: Ctrl-C, or what interrupts a notebook, stops the job cleanly
    where this is the main thread, and is then raised. `report` gets one line at a time.

    `spark` stays as it was, since the job runs in a session derived from it. `settings` are the other keys of the
    configuration, a section as a dict: `cluster="eu", metrics={"listen": "127.0.0.1:9464"}`; `conf` are settings of
    Spark for the derived session. Neither a configuration file nor the environment is read.

    Raises `JobError`, whose text says what to do: if the job cannot start or go on, another one writes the cluster, a
    setting is invalid, `spark` is a session of Spark Connect or lacks something, or its Kafka source returns no records
    although the brokers do.
    """
    from streaming_app.job import given_session  # noqa: PLC0415 - see above

    values = {"bootstrap_server": bootstrap_server, "warehouse": warehouse, **settings}
    given_session.run(spark, values, once=once, stop=stop, report=report)


def query(place: str | os.PathLike[str], sql: str) -> pa.Table:
    """Return the result of one SELECT on the tables and views of the warehouse at `place`, without Spark.

    `place` is a directory or the URI of an object store, `sql` is in DataFusion's dialect. The tables are read as they
    are now, all at once, so the result fits the memory. Its types are those that pandas, polars and DuckDB read. Raises
    `streaming_app.errors.WarehouseError` if there is no warehouse, the query fails, or `sql` is another statement.
    """
    from streaming_app.errors import WarehouseError  # noqa: PLC0415 - see above
    from streaming_app.tables.arrow import with_plain_types  # noqa: PLC0415
    from streaming_app.tables.location import Location  # noqa: PLC0415
    from streaming_app.tables.reader import WarehouseReader  # noqa: PLC0415

    try:
        location = Location.of(str(place))
    except ValueError as error:
        raise WarehouseError(str(error)) from None
    reader = WarehouseReader(location)
    reader.check_is_query(sql)
    return with_plain_types(reader.query(sql))


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

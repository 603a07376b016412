"""Creates the Delta tables, and adds the columns that an older release did not have.

`schemas/tables/` defines what a row means; here is how its table is kept.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from streaming_app.errors import JobError, java_error_message
from streaming_app.tables.definitions import FORMAT_PROPERTY, WAREHOUSE_FORMAT, Table, tables
from streaming_app.tables.object_store import describe_error
from streaming_app.tables.spark_sql import identifier, literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_app.tables.files import Files
    from streaming_app.tables.location import Location

LOG_RETENTION_HOURS = 3
_PROPERTIES = {
    FORMAT_PROPERTY: str(WAREHOUSE_FORMAT),
    "delta.enableDeletionVectors": "true",  # replacing a few groups then rewrites no large file
    "delta.checkpointInterval": "50",  # at a commit a second, the default of 10 would be costly
    # A commit a second leaves many files, and each commit lists those of the log: with 170,000 of them it took five
    # times as long. The history for users is in group_events; old versions serve time travel and concurrent readers.
    "delta.logRetentionDuration": f"interval {LOG_RETENTION_HOURS} hours",
    "delta.deletedFileRetentionDuration": f"interval {LOG_RETENTION_HOURS} hours",
}
_BY_DELTA_RS = {"delta.enableDeletionVectors": "false"}  # delta-rs writes the table, and does not write them
_REPLACED = {  # as a whole, every half minute or so: old versions would soon be larger than all else
    **_BY_DELTA_RS,
    "delta.logRetentionDuration": "interval 30 minutes",
    "delta.deletedFileRetentionDuration": "interval 30 minutes",
}
_TABLE_PROPERTIES = {
    **dict.fromkeys(("alerts", "offset_commits", "group_records"), _BY_DELTA_RS),
    "lag": _REPLACED,
    "lag_history": _BY_DELTA_RS,
    "log_ends": _REPLACED,
    "task_copies": _REPLACED,
    "broker_facts": _REPLACED,
}
_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""Settings of users that Delta would make properties of our tables, such as features that delta-rs does not write."""
_BY_SPARK = {one.name for one in tables()} - set(_TABLE_PROPERTIES)
"""The tables with deletion vectors: for those delta-rs adds features to a table that Delta 4.0 does not need."""
_MISSING_FILE_SYSTEM = re.compile(r"Class \S*FileSystem\S* not found")
_STATISTICS_COLUMNS = {"group_id"}  # queries filter by it; statistics of other columns only cost time


def prepare_tables(spark: SparkSession, warehouse: Location, files: Files) -> set[str]:
    """Create missing tables and add missing columns; return the names of the new tables.

    Raises JobError if the warehouse cannot be written, or was created by something else.
    """
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 - Spark's workers import this module without delta-rs
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - only the job loads Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    try:
        missing = missing_tables(warehouse)
        for name in [name for name in spark.conf.getAll if name.startswith(_DEFAULTS)]:
            spark.conf.unset(name)
        for definition in missing:
            _remove_empty_log(warehouse / definition.name, files)
            _create(spark, warehouse / definition.name, definition)
        for definition in tables():
            if definition not in missing:
                _upgrade(spark, warehouse / definition.name, definition)
    except (PySparkException, Py4JJavaError) as error:
        raise JobError(f"Cannot write the warehouse {warehouse}: {_describe_java_error(error)}") from None
    except (DeltaError, OSError) as error:
        raise JobError(f"Cannot write the warehouse {warehouse}: {describe_error(error)}") from None
    return {definition.name for definition in missing}


def missing_tables(warehouse: Location) -> list[Table]:
    """Return the tables that do not exist yet. Raises JobError if one that exists has another format.

    By delta-rs: it opens a table in milliseconds and needs no Spark, which would run a job for each.
    """
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 - Spark's workers import this module without delta-rs

    missing = []
    for definition in tables():
        location = warehouse / definition.name
        try:
            if not location.is_delta_table():
                missing.append(definition)
                continue
            table_format = location.delta_table().metadata().configuration.get(FORMAT_PROPERTY)
        except (DeltaError, OSError) as error:
            raise JobError(f"Cannot read the warehouse {warehouse}: {describe_error(error)}") from None
        if table_format != str(WAREHOUSE_FORMAT):
            other = "was not created by streams-groups" if table_format is None else f"has format {table_format}"
            raise JobError(
                f"{location} {other}, and this release writes format {WAREHOUSE_FORMAT}: "
                "choose another --warehouse, or the release that created it"
            )
    return missing


def _upgrade(spark: SparkSession, location: Location, definition: Table) -> None:
    """Add the columns that an older release did not have; in its rows they are null."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - only the job loads Spark

    from streaming_app.tables.schema_evolution import UnknownColumnError, missing_columns  # noqa: PLC0415 - as above

    actual = StructType.fromJson(json.loads(location.delta_table().schema().to_json()))
    try:
        for column, column_type in missing_columns(actual, StructType.fromDDL(definition.ddl)):
            spark.sql(f"ALTER TABLE delta.{identifier(location)} ADD COLUMNS ({column} {column_type})")
    except UnknownColumnError as error:
        raise JobError(
            f"{location} has a column {error}: use the release that created it, or another --warehouse"
        ) from None


def _remove_empty_log(location: Location, files: Files) -> None:
    """Remove what is left of a creation that was interrupted: Spark would take it for a table, and create none."""
    log = location / "_delta_log"
    if location.is_local:
        for directory in (log / "_staged_commits", log):
            with suppress(OSError):  # it is not there, or not empty: another job may be creating the table
                directory.path.rmdir()
    elif not any(name.endswith((".json", ".parquet")) for name in log.names()):
        files.remove(log)


def _create(spark: SparkSession, location: Location, definition: Table) -> None:
    """Create a table, with delta-rs where that gives the same one: it takes milliseconds, Spark a third of a second."""
    properties = {
        **_PROPERTIES,
        **_TABLE_PROPERTIES.get(definition.name, {}),
        "delta.dataSkippingStatsColumns": ",".join(name for name in definition.names if name in _STATISTICS_COLUMNS),
    }
    columns = ", ".join(f"{c.name} {c.type} COMMENT {literal(c.about)}" for c in definition.columns)
    if definition.name in _BY_SPARK:
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.{identifier(location)} ({columns}) USING delta "
            f"PARTITIONED BY (cluster) COMMENT {literal(definition.about)} TBLPROPERTIES ({pairs})"
        )
    else:
        _create_with_delta_rs(location, definition, columns, properties)


def _create_with_delta_rs(location: Location, definition: Table, columns: str, properties: dict[str, str]) -> None:
    from deltalake import DeltaTable, Schema  # noqa: PLC0415 - Spark's workers import this module without delta-rs
    from pyspark.sql.types import StructType  # noqa: PLC0415 - only the job loads Spark

    DeltaTable.create(
        str(location),
        Schema.from_json(StructType.fromDDL(columns).json()),
        mode="ignore",
        partition_by=["cluster"],
        description=definition.about,
        configuration=properties,
        storage_options=location.storage_options,
        raise_if_key_not_exists=False,  # of our own properties
    )


def _describe_java_error(error: Exception) -> str:
    line = java_error_message(error)
    if "No FileSystem for scheme" in line or _MISSING_FILE_SYSTEM.search(line):
        return f"{line}: add the jar for this kind of store with the setting spark.jars.packages, see deploy/README.md"
    return line

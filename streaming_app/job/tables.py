"""The Delta tables: made, checked, and written by the job. What a row means is said in `schemas/tables/`."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from schemas.table_definitions import WAREHOUSE_FORMAT, Table, table, tables
from streaming_app.job.errors import JobError, java_line
from streaming_app.job.files import files_at
from streaming_app.job.history import standing
from streaming_app.serve.place import Place
from streaming_app.serve.stores import reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

VERSIONS_KEPT_HOURS = 3
FORMAT_PROPERTY = "streams_groups.format"
_PROPERTIES = {
    FORMAT_PROPERTY: str(WAREHOUSE_FORMAT),
    "delta.enableDeletionVectors": "true",  # replacing a few groups then rewrites no file of many
    "delta.checkpointInterval": "50",  # a commit a second would otherwise mean a checkpoint every ten
    # A commit a second leaves many files, and each commit lists those of the log: with 170,000 of them it took five
    # times as long. History for people is in group_events; this is for time travel, and for who reads meanwhile.
    "delta.logRetentionDuration": f"interval {VERSIONS_KEPT_HOURS} hours",
    "delta.deletedFileRetentionDuration": f"interval {VERSIONS_KEPT_HOURS} hours",
}
_OTHER_PROPERTIES = {
    "alerts": {"delta.enableDeletionVectors": "false"},  # delta-rs writes it, and knows how to without them
}
_COMPACTED_BYTES = 32 << 20  # files from this size on are left alone until many of their rows are gone
_FEW_ROWS_CONF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",  # the rows are of those groups
}
_LACKING = re.compile(r"Class \S*FileSystem\S* not found")
_SKIPPED_BY = {"group_id"}  # what tables are looked up by: statistics of more only cost time


class Warehouse:
    """The tables below `place` as the job writes them, for one cluster; `files` are those beside them."""

    def __init__(self, spark: SparkSession, place: Place | Path | str, cluster: str) -> None:
        self._spark = spark
        self._place = Place.of(place)
        self._cluster = cluster
        self.files = files_at(self._place, spark)

    def prepare(self) -> set[str]:
        """Create the tables that are missing, and name them. Raises JobError if the warehouse cannot be written."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - Spark is loaded by those who need it
        from pyspark.errors import PySparkException  # noqa: PLC0415

        try:
            missing = missing_tables(self._place)
            for definition in missing:
                self._create(self._at(definition.name), definition)
            for definition in tables():
                if definition not in missing:
                    self._upgrade(self._place / definition.name, definition)
        except (PySparkException, Py4JJavaError) as error:
            raise JobError(f"Cannot write the warehouse {self._place}: {_explained(error)}") from None
        return {definition.name for definition in missing}

    def for_few_rows(self) -> Warehouse:
        """The same tables through a session that interprets its plans: compiling them takes longer than a few rows."""
        session = self._spark.newSession()
        for name, value in _FEW_ROWS_CONF.items():
            session.conf.set(name, value)
        return Warehouse(session, self._place, self._cluster)

    def frame(self, rows: pa.Table) -> DataFrame:
        """`rows` as a DataFrame of this warehouse's session."""
        return self._spark.createDataFrame(rows)

    def stored(self) -> DataFrame:
        """The stored rows of all groups."""
        return self._mine("groups")

    def stored_rows(self, column: str, values: Sequence[str]) -> pa.Table:
        """The stored rows of groups that have one of `values` in `column`.

        By delta-rs: it finds 50 among 100,000 in a tenth of the time of Spark.
        """
        import pyarrow as pa  # noqa: PLC0415 - the workers import this module, and need none of these
        from deltalake import QueryBuilder  # noqa: PLC0415

        from streaming_app.serve.warehouse import quoted  # noqa: PLC0415

        groups = (self._place / "groups").delta_table()
        builder = QueryBuilder().register("groups", groups)
        builder.execute("SET datafusion.execution.parquet.pushdown_filters = true")  # the bulk of a row after its id
        those = f"cluster = {quoted(self._cluster)} AND {column} IN ({', '.join(map(quoted, values))})"
        wanted = f"SELECT * FROM groups WHERE {those}"  # noqa: S608 - quoted
        schema = pa.schema(groups.schema().to_arrow())  # DataFusion's strings are views, which Arrow cannot sort
        return pa.table(builder.execute(wanted).read_all()).select(schema.names).cast(schema)

    def is_empty(self, name: str) -> bool:
        """Tell whether a table has no row of any cluster; by delta-rs, as Spark takes a second to start on that."""
        return int((self._place / name).delta_table().get_add_actions().num_rows) == 0

    def identity(self, name: str) -> str:
        """What tells a table from one that was made in its place, or elsewhere, or for another cluster's rows."""
        return f"{(self._place / name).delta_table().metadata().id}/{self._cluster}"

    def highest_offsets(self, name: str, partition: str) -> dict[int, int]:
        """The highest offset in a table, by the topic's partition, which stands in the column `partition`."""
        if self.is_empty(name):
            return {}
        return dict(self._mine(name).groupBy(partition).max("offset").collect())

    def forget_groups(self) -> None:
        """Drop the rows of all groups of this cluster."""
        self._target("groups").delete(f"cluster = {_literal(self._cluster)}")

    def append(self, name: str, rows: DataFrame, writer: str, batch_id: int) -> None:
        """Append `rows` to table `name` once: the same writer and batch again is skipped by Delta."""
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", f"{writer}-{name}")
            .option("txnVersion", batch_id)
            .save(self._at(name))
        )

    def rewrite_events(self, events: DataFrame, retracted: DataFrame) -> None:
        """Take back the events of operations that a batch before saw only in part, and put in all of `events`.

        By key, so that a second time changes nothing; rare, so that its cost does not matter.
        """
        from pyspark.sql import functions as F  # noqa: PLC0415, N812 - its usual name

        key = table("group_events").key
        changes = retracted.withColumn("gone", F.lit(True)).unionByName(events.withColumn("gone", F.lit(False)))  # noqa: FBT003
        columns = {column.name: f"s.{column.name}" for column in table("group_events").columns}
        (
            self._target("group_events")
            .alias("t")
            .merge(changes.alias("s"), " AND ".join(f"t.{name} <=> s.{name}" for name in key))
            .whenMatchedDelete("s.gone")
            .whenNotMatchedInsert("NOT s.gone", values=columns)
            .execute()
        )

    def add_groups(self, rows: DataFrame) -> None:
        """Put in groups that are not there yet."""
        rows.write.format("delta").mode("append").save(self._at("groups"))

    def replace_groups(self, rows: DataFrame, group_ids: Sequence[str]) -> None:
        """Put `rows` in place of the rows of exactly these groups, in one commit."""
        concerned = f"cluster = {_literal(self._cluster)} AND group_id IN ({', '.join(map(_literal, group_ids))})"
        rows.write.format("delta").mode("overwrite").option("replaceWhere", concerned).save(self._at("groups"))

    def merge_groups(self, rows: DataFrame) -> None:
        """Put the rows of groups, however many, in place of those that stand there."""
        condition = f"t.cluster = {_literal(self._cluster)} AND t.group_id = s.group_id"
        merge = self._target("groups").alias("t").merge(rows.alias("s"), condition)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def compact(self, name: str) -> None:
        """Put the small files of a table together, and rewrite those of which much was deleted."""
        self._spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(_COMPACTED_BYTES))
        self._target(name).optimize().where(f"cluster = {_literal(self._cluster)}").executeCompaction()

    def forget_versions(self, name: str) -> None:
        """Remove the log of versions that are older than the table's retention.

        Delta does so by itself at checkpoints, but only of days that are over: by then there are too many.
        """
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the JVM has no public name
        delta = jvm.org.apache.spark.sql.delta
        log = delta.DeltaLog.forTable(self._spark._jsparkSession, self._at(name))  # noqa: SLF001 - nor has this
        the_tables_own = getattr(log, "cleanUpExpiredLogs$default$2")()
        log.cleanUpExpiredLogs(log.unsafeVolatileSnapshot(), the_tables_own, delta.TruncationGranularity.MINUTE())

    def trim(self, name: str, column: str, days: float) -> int:
        """Drop the rows whose time in `column` is more than `days` ago, and return how many there were.

        Of events those stay that told what was still so then (`history.standing`).
        """
        before = datetime.now(timezone.utc) - timedelta(days=days)
        old = f"cluster = {_literal(self._cluster)} AND {column} < TIMESTAMP '{before.isoformat()}'"
        rows = self._spark.read.format("delta").load(self._at(name)).where(old)
        if name != "group_events":
            if count := rows.count():
                self._target(name).delete(old)
            return count
        stay = standing(rows, self.stored())
        count = rows.count() - stay.count()
        if count:
            stay.write.format("delta").mode("overwrite").option("replaceWhere", old).save(self._at(name))
        return count

    def vacuum(self, name: str) -> None:
        """Remove the files that no version within the table's retention needs."""
        self._target(name).vacuum()

    def _mine(self, name: str) -> DataFrame:
        return self._spark.read.format("delta").load(self._at(name)).where(f"cluster = {_literal(self._cluster)}")

    def _target(self, name: str) -> Any:  # noqa: ANN401 - delta ships no types
        from delta.tables import DeltaTable  # noqa: PLC0415 - loads Spark

        return DeltaTable.forPath(self._spark, self._at(name))

    def _at(self, name: str) -> str:
        return str(self._place / name)

    def _upgrade(self, location: Place, definition: Table) -> None:
        """Add the columns that a release before did not have; in its rows they are null."""
        from pyspark.sql.types import StructType  # noqa: PLC0415 - Spark is loaded by those who need it

        from streaming_app.job.columns import UnknownColumnError, additions  # noqa: PLC0415 - as above

        have = StructType.fromJson(json.loads(location.delta_table().schema().to_json()))
        try:
            for column, kind in additions(have, StructType.fromDDL(definition.ddl)):
                self._spark.sql(f"ALTER TABLE delta.`{location}` ADD COLUMNS ({column} {kind})")
        except UnknownColumnError as error:
            raise JobError(
                f"{location} has a column {error} that this release does not know: use the newer one that made it"
            ) from None

    def _create(self, location: str, definition: Table) -> None:
        """Spark creates: delta-rs would ask for table features that Delta 4.0 does not need."""
        columns = ", ".join(f"{c.name} {c.type} COMMENT {_literal(c.about)}" for c in definition.columns)
        skipped_by = ",".join(name for name in definition.names if name in _SKIPPED_BY)
        properties = ", ".join(
            f"{_literal(name)} = {_literal(value)}"
            for name, value in {
                **_PROPERTIES,
                **_OTHER_PROPERTIES.get(definition.name, {}),
                "delta.dataSkippingStatsColumns": skipped_by,
            }.items()
        )
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{location}` ({columns}) USING delta "
            f"PARTITIONED BY (cluster) COMMENT {_literal(definition.about)} TBLPROPERTIES ({properties})"
        )


def missing_tables(warehouse: Place) -> list[Table]:
    """The tables that are still to be made. Raises JobError if one that is there is not of our format.

    By delta-rs: that looks at four tables in a blink and before there is a Spark, which takes a job for each.
    """
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 - the workers import this module, and need no delta-rs

    missing = []
    for definition in tables():
        location = warehouse / definition.name
        try:
            if not location.is_delta_table():
                missing.append(definition)
                continue
            made = location.delta_table().metadata().configuration.get(FORMAT_PROPERTY)
        except (DeltaError, OSError) as error:
            raise JobError(f"Cannot read the warehouse {warehouse}: {reason(error)}") from None
        if made != str(WAREHOUSE_FORMAT):
            other = "no streams-groups job" if made is None else f"a streams-groups of format {made}"
            raise JobError(
                f"{location} was made by {other}, and this one writes format {WAREHOUSE_FORMAT}: "
                "choose another --warehouse, or the release that made it"
            )
    return missing


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _explained(error: Exception) -> str:
    line = java_line(error)
    if "No FileSystem for scheme" in line or _LACKING.search(line):
        return f"{line}: name the jar of this kind of store by the setting spark.jars.packages, see deploy/README.md"
    return line

"""Delta Lake in a Spark session, for tests that query with Spark SQL: the job does not need it."""

import importlib.metadata
import os

from streaming_app.jvm.jars import SCALA, connector_jars, find_jars
from tests.support.ivy import SPARK_EXCLUSIONS, resolve


def delta_conf() -> dict[str, str]:
    """Return the settings of a session with Delta Lake, and with the connector that the job needs."""
    version = importlib.metadata.version("delta-spark")
    jars = resolve(f"io.delta:delta-spark_{SCALA}:{version}", exclude=SPARK_EXCLUSIONS)
    return {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [*find_jars(connector_jars()), *jars])),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }

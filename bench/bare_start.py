"""The rival of the job in `startup`: a process with a bare Spark session that does one batch and ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.jvm.spark_session import spark_session
from streaming_app.kafka.offsets_topic import describe_offsets_topic
from streaming_app.kafka.properties import client_properties
from streaming_app.stream.source import read_stream
from tests.support.delta import delta_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(server: str, topic: str, table: str) -> None:
    """Append one row to a table: the number of records since the checkpoint."""
    with spark_session(Path(f"{table}.log"), conf=delta_conf()) as spark:
        properties = client_properties(server, None)
        records = read_stream(spark, properties, describe_offsets_topic(spark, properties, topic), 1_000_000)

        def write(batch: DataFrame, _batch_id: int) -> None:
            batch.selectExpr("count(*) AS records").coalesce(1).write.format("delta").mode("append").save(table)

        stream = records.writeStream.foreachBatch(write).trigger(availableNow=True)
        stream.option("checkpointLocation", f"{table}-checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What `kminion` compares the job with, too: a process with a bare Spark session that counts the topic and ends."""

from __future__ import annotations

import sys
from pathlib import Path

from streaming_app.jvm.spark_session import start_spark
from streaming_app.kafka.offsets_topic import describe_offsets_topic
from streaming_app.kafka.properties import client_properties
from tests.support.reading import read_once


def main(server: str, topic: str, log: str) -> None:
    """Print how many records the topic has, as soon as Spark has read each of them once."""
    spark = start_spark(Path(log))
    properties = client_properties(server, None)
    print(read_once(spark, properties, describe_offsets_topic(spark, properties, topic)).count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Reads the offsets topic once, as a table, with the options of the stream."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from streaming_app.kafka.offsets_topic import OffsetsTopic
from streaming_app.stream.source import source_options


def read_once(spark: SparkSession, properties: Mapping[str, str], topic: OffsetsTopic) -> DataFrame:
    """Every record that the topic holds now."""
    return spark.read.format("kafka").options(**source_options(properties, topic)).load()

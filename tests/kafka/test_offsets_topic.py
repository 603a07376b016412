"""What the job asks brokers through Spark's JVM: with the client properties that its stream has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streaming_app.kafka.offsets_topic import has_description_plugin
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.container import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_brokers_say_whether_they_have_a_plugin_for_descriptions_and_nobody_knows_once_they_are_away(
    spark: SparkSession, broker: Broker, start_broker: Callable[..., LocalBroker]
) -> None:
    def has_plugin(address: str, wait_ms: int = 120_000) -> bool | None:
        return has_description_plugin(spark, {"bootstrap.servers": address, "default.api.timeout.ms": str(wait_ms)})

    assert has_plugin(broker.bootstrap_server) is True
    without = start_broker(version="4.3.1")
    assert has_plugin(without.bootstrap_server) is False
    without.stop()
    assert has_plugin(without.bootstrap_server, 1_000) is None

"""The broker that tests share: Kafka from its jars."""

from streaming_app.sandbox.broker import LocalBroker

Broker = LocalBroker

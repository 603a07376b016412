"""The type of the broker that tests share."""

from streaming_app.sandbox.broker import LocalBroker

Broker = LocalBroker

"""A real Apache Kafka broker on this machine, from jars, for the demo and the tests."""

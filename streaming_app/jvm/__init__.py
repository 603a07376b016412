"""The Java runtime and the jars that Spark and Kafka need."""

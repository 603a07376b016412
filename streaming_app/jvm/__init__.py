"""Java, the jars that Spark and Kafka need, and the session of Spark."""

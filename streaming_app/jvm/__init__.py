"""Java, the jars that Spark and Kafka need, and the Spark session: its settings, its JVM and its log."""

"""A micro-batch from the Kafka source to the tables, and the checks and repairs before the first batch."""

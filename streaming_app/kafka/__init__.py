"""Requests to Kafka brokers other than Spark's own reads: client settings, requests, and errors in plain words."""

"""Requests to Kafka brokers other than Spark's own reads: client settings, requests, and errors in plain words."""

GROUP_PREFIX = "streams-groups"
"""Spark's consumers use group ids with this prefix; they neither join nor commit."""

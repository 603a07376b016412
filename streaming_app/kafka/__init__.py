"""Requests to Kafka brokers other than Spark's own reads: client settings, requests, and errors in plain words."""

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic of groups and their committed offsets."""
GROUP_PREFIX = "streams-groups"
"""Spark's consumers use group ids with this prefix; they neither join nor commit."""

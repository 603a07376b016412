"""Requests to Kafka brokers other than Spark's own reads: client settings, requests, and errors in plain words."""

GROUP_PREFIX = "streams-groups"
"""The prefix of the group ids of Spark's consumers, which neither join nor commit."""
AUTHORIZATION_CODES = frozenset({29, 30})
"""TOPIC_AUTHORIZATION_FAILED (for a topic that the group uses) and GROUP_AUTHORIZATION_FAILED."""
GROUP_CONFIG, GROUP_STATE, INTERNAL_TOPIC = "group_config", "group_state", "internal_topic"
BROKER_CONFIG, COORDINATOR, RETENTION = "broker_config", "coordinator", "retention"
ISR, TRANSACTION, WRITER, FEATURE, SINK = "isr", "transaction", "writer", "feature", "sink"
CHANGELOG = "changelog"
"""The kinds of rows of `broker_facts`."""
ASKED_FOR = ", asked for "
"""In the value of a fact about a difference: separates the actual value of an internal topic from the topology's."""

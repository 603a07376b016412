"""Requests to Kafka brokers other than Spark's own reads: client settings, requests, and errors in plain words."""

GROUP_PREFIX = "streams-groups"
"""Spark's consumers use group ids with this prefix; they neither join nor commit."""
AUTHORIZATION_CODES = frozenset({29, 30})
"""TOPIC_AUTHORIZATION_FAILED, of a topic that the group uses, and GROUP_AUTHORIZATION_FAILED."""
GROUP_CONFIG, GROUP_STATE, INTERNAL_TOPIC, LEFT_OVER_TOPIC = (
    "group_config",
    "group_state",
    "internal_topic",
    "left_over_topic",
)
BROKER_CONFIG, COORDINATOR, RETENTION, ISR, TRANSACTION, WRITER, FEATURE = (
    "broker_config",
    "coordinator",
    "retention",
    "isr",
    "transaction",
    "writer",
    "feature",
)
"""The kinds of rows of `broker_facts`."""
ASKED_FOR = ", asked for "
"""Between what an internal topic is and what its topology asks for, in the value of a fact where they differ."""

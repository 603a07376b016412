"""Errors of the requests that the comparison sends to the brokers, as one line that says what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka.errors import KafkaError

from streaming_app.kafka import diagnose
from streaming_app.kafka.client_errors import missing_acl_message
from streaming_app.kafka.errors import TOPIC_AUTHORIZATION_FAILED, GroupError

REQUEST_ERRORS = (GroupError, KafkaError, OSError, ValueError)
"""What kafka-python and `StreamsGroupClient` raise."""


def error_message(error: Exception, bootstrap_server: str, properties: Mapping[str, str]) -> str:
    """Return the line about one of `REQUEST_ERRORS`, with its cause where that can be determined."""
    if isinstance(error, GroupError):
        if error.code == TOPIC_AUTHORIZATION_FAILED:
            return missing_acl_message("DESCRIBE", "Topic", error.message)
        return f"{bootstrap_server} returned an error: {error}"
    name, text = type(error).__name__, " ".join(str(error).split())
    if name == "GroupAuthorizationFailedError" and (group := re.search(r"GROUP/(.+?):?$", text)):
        return missing_acl_message("DESCRIBE", "Group", group[1])
    if "Authorization" in name:
        return f"{bootstrap_server} denied access: {text}; verify needs Describe on the groups and on the offsets topic"
    if "Timeout" in name or "Connection" in name or "NoBrokers" in name or "Authentication" in name:
        return diagnose.describe_failure(bootstrap_server, properties)
    return f"{bootstrap_server}: {name}: {text}"

"""The first configuration for a cluster, which `check --write-config` writes."""

import json
from pathlib import Path

_TEXT = """\
# Written by `check --write-config`. deploy/streams-groups.example.yaml has every key with its default.
bootstrap_server: {server}
command_config: {command_config}
# Where the tables are: a directory, or s3a://, abfss://, gs://, hdfs://.
warehouse: warehouse
# A name for this Kafka cluster. Every row and every alert contains it.
cluster: default

# Where alerts are sent; docs/alerts.md has each kind of sink. Without a sink they are only in a table.
sinks: []
#  - {{type: apprise, url: "${{file:/run/secrets/chat-url}}"}}

metrics:
  # /metrics, /health and /ready; null: not served.
  listen: 127.0.0.1:9464
"""


def first_configuration(server: str, command_config: Path | None) -> str:
    """Return the text of a configuration file."""
    file = None if command_config is None else str(command_config.absolute())
    return _TEXT.format(server=json.dumps(server), command_config=json.dumps(file))

"""The first configuration for a cluster, with facts about the cluster as comments. `check --write-config` writes it."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import TextWrapper

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.fact_requests import configs_of_brokers
from streaming_app.kafka.releases import DESCRIPTION_PLUGIN
from streaming_app.text import escape, first_of

_GROUPS_NAMED = 10
_WIDTH = 118
_DESCRIPTIONS = "Whether the cluster stores topology descriptions: always, never, or auto, which detects it."

Cluster = tuple[Mapping[str, str], str | None]
"""Streams group that the principal may see -> its state in the brokers' spelling; and the class of the topology
description plugin ("" for none, None if the principal may not read it)."""


def describe_cluster(properties: Mapping[str, str]) -> Cluster:
    """Return the facts about a cluster. Raises the errors of `StreamsGroupClient`."""
    with StreamsGroupClient.of(properties) as client:
        facts = configs_of_brokers(client, client.broker_ids())
        plugin = next((fact.value for fact in facts if fact.name == DESCRIPTION_PLUGIN), "")
        return client.streams_groups(), plugin if facts else None


def first_configuration(server: str, command_config: Path | None, cluster: Cluster) -> str:
    """Return the text of a configuration file."""
    groups, plugin = cluster
    known = "No streams group is on the cluster, or this principal may describe none."
    if groups:
        states = ", ".join(f"{count:,} {state}" for state, count in Counter(groups.values()).most_common())
        names = first_of([escape(name) for name in sorted(groups)], _GROUPS_NAMED)
        known = f"{len(groups):,} streams groups are on the cluster ({states}): {names}."
    keeps = "This principal may not read the brokers' configuration (ACL DescribeConfigs on Cluster)."
    if plugin is not None:
        keeps = f"The brokers have {f'the plugin {escape(plugin)}' if plugin else 'no plugin for them now'}."
    lines = [
        "# Written by `check --write-config`. deploy/streams-groups.example.yaml has every key with its default.",
        f"bootstrap_server: {json.dumps(server)}",
        f"command_config: {'null' if command_config is None else json.dumps(str(command_config.absolute()))}",
        "# Where the tables are: a directory, or s3a://, abfss://, gs://, hdfs://.",
        "warehouse: warehouse",
        "# A name for this Kafka cluster. Every row and every alert contains it.",
        "cluster: default",
        "",
        *_comment(known),
        "alerts:",
        *_comment(f"{_DESCRIPTIONS} {keeps}", indent="  "),
        "  descriptions: auto",
        "",
        "# Where alerts are sent; docs/alerts.md has each kind of sink. Without a sink they are only in a table.",
        "sinks: []",
        '#  - {type: apprise, url: "${file:/run/secrets/chat-url}"}',
        "",
        "metrics:",
        "  # /metrics, /health and /ready; null: not served.",
        "  listen: 127.0.0.1:9464",
    ]
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a comment, broken at spaces. A word that is longer than a line is not broken."""
    wrapper = TextWrapper(_WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False)
    yield from (f"{indent}# {line}" for line in wrapper.wrap(text))

"""A first configuration for a cluster, with what was found on it as comments: `check --write-config` writes it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafka.admin import ConfigResource, ConfigResourceType

from streaming_app.checks.result import FAILED, OK, WARNING, Result
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.text import escape, first_of

_PLUGIN_CLASS = "group.streams.topology.description.plugin.class"
_GROUPS_NAMED = 10
_WIDTH = 118


class Cluster(NamedTuple):
    """What was found on a cluster."""

    groups: Mapping[str, str]
    """The state of each streams group that the principal may see, as the brokers spell it."""
    plugin: str | None
    """The class of the brokers' topology description plugin: "" for none, None if it may not be read."""


def ask_cluster(properties: Mapping[str, str]) -> Cluster:
    """Return what is on the cluster of these client properties. Raises what `StreamsGroupClient` raises."""
    with StreamsGroupClient.of(properties) as client:
        broker = str(client.admin.describe_cluster()["brokers"][0]["broker_id"])
        resource = ConfigResource(ConfigResourceType.BROKER, broker)
        found = client.admin.describe_configs([resource], config_filter="all")
        configs = found.get("broker", {}).get(broker, {})
        plugin = (configs.get(_PLUGIN_CLASS) or {}).get("value") or ""
        return Cluster(client.list_groups(), plugin if configs else None)


def first_configuration(server: str, command_config: Path | None, cluster: Cluster, results: Sequence[Result]) -> str:
    """Return the text of a configuration file. `results` are those of `check_brokers`."""
    lines = [
        "# Written by `check --write-config`. deploy/streams-groups.example.yaml has every key with its default.",
        f"bootstrap_server: {_quote(server)}",
        f"command_config: {'null' if command_config is None else _quote(str(command_config.absolute()))}",
        "# Where the tables are: a directory, or s3a://, abfss://, gs://, hdfs://.",
        "warehouse: warehouse",
        "# A name for this Kafka cluster, which is in every row and every alert.",
        "cluster: default",
        "",
        *_comment(_groups(cluster.groups)),
        "alerts:",
        *_comment(_plugin(cluster.plugin), indent="  "),
        "  descriptions: auto",
        "",
        "# Where alerts are sent; docs/alerts.md has each kind of sink. Without one they are only in a table.",
        "sinks: []",
        '#  - {type: apprise, url: "${file:/run/secrets/chat-url}"}',
        "",
        "metrics:",
        "  # /metrics, /health and /ready; null: not served.",
        "  listen: 127.0.0.1:9464",
        "",
        *_acls(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _groups(groups: Mapping[str, str]) -> str:
    if not groups:
        return "No streams group is on the cluster, or this principal may describe none."
    states = ", ".join(f"{count:,} {state}" for state, count in Counter(groups.values()).most_common())
    names = first_of([escape(name) for name in sorted(groups)], _GROUPS_NAMED)
    return f"{len(groups):,} streams groups are on the cluster ({states}): {names}."


def _plugin(plugin: str | None) -> str:
    keys = "Whether the cluster stores topology descriptions: always, never, or auto, which detects it."
    if plugin is None:
        return f"{keys} The brokers' configuration may not be read (ACL DescribeConfigs on Cluster)."
    found = f"The brokers have the plugin {escape(plugin)}." if plugin else "The brokers have no plugin for them now."
    return f"{keys} {found}"


def _acls(results: Sequence[Result]) -> Iterator[str]:
    acls = [result for result in results if result.check.startswith("ACL")]
    missing = [result for result in acls if result.status in {FAILED, WARNING}]
    granted = [result.check.removeprefix("ACL ") for result in acls if result.status == OK]
    if granted:
        yield from _comment(f"ACLs that the principal has: {', '.join(granted)}.")
    for result in missing:
        yield from _comment(escape(result.line))


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a comment, broken at spaces; a word that is longer than a line stays whole."""
    line = f"{indent}#"
    for word in text.split():
        if len(line) + 1 + len(word) > _WIDTH and not line.endswith("#"):
            yield line
            line = f"{indent}#"
        line += f" {word}"
    yield line


def _quote(text: str) -> str:
    """Return a YAML string: JSON is one."""
    return json.dumps(text)

"""What `init` writes is a valid configuration, whatever the groups on the cluster are called."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from streaming_app.checks.first_configuration import Cluster, first_configuration
from streaming_app.checks.result import failed, ok, warning
from streaming_app.config.load import load
from tests.long.hostile import HOSTILE, effective_characters

RESULTS = [
    ok("topic", "fine"),
    ok("ACL Read on Topic:__consumer_offsets", "granted"),
    warning("ACL Describe on Group:*", "missing, and optional"),
    failed("ACL Describe on Group:streams-groups (prefixed)", "missing", "grant it with kafka-acls.sh --add"),
]


def write(tmp_path: Path, cluster: Cluster, command_config: Path | None = None) -> tuple[Path, str]:
    file = tmp_path / "streams-groups.yaml"
    text = first_configuration("broker:9092", command_config, cluster, RESULTS)
    file.write_text(text, "utf-8")
    return file, text


def test_it_is_a_valid_configuration_with_the_connection(tmp_path: Path) -> None:
    properties = tmp_path / 'client "quoted" ${x}.properties'
    properties.touch()
    file, _ = write(tmp_path, Cluster({}, None))
    assert load(file).settings.bootstrap_server == "broker:9092"
    _, text = write(tmp_path, Cluster({}, None), properties)
    assert yaml.safe_load(text)["command_config"] == str(properties)


def test_groups_plugin_and_acls_are_comments(tmp_path: Path) -> None:
    groups = {f"app-{number}": "Stable" if number else "NotReady" for number in range(12)}
    _, text = write(tmp_path, Cluster(groups, "com.example.Plugin"))
    comments = " ".join(line.strip().removeprefix("# ") for line in text.splitlines() if line.strip().startswith("#"))
    assert "12 streams groups are on the cluster (11 Stable, 1 NotReady): app-0, app-1, app-10" in comments
    assert "and 2 more." in comments
    assert "The brokers have the plugin com.example.Plugin." in comments
    assert "ACLs that the principal has: Read on Topic:__consumer_offsets." in comments
    assert "ACL Describe on Group:streams-groups (prefixed): missing; grant it with kafka-acls.sh --add" in comments
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("plugin", "text"), [("", "have no plugin for them now"), (None, "may not be read (ACL DescribeConfigs")]
)
def test_without_a_plugin_or_the_acl_to_know_of_one_the_comment_says_so(
    tmp_path: Path, plugin: str | None, text: str
) -> None:
    assert text in " ".join(write(tmp_path, Cluster({}, plugin))[1].replace("#", "").split())


def test_no_group_id_leaves_its_comment(tmp_path: Path) -> None:
    hostile = {HOSTILE: "Stable", "x\nsinks: [evil]": "Stable", "y\r\ncluster: evil": "Stable"}
    file, text = write(tmp_path, Cluster(hostile, HOSTILE))
    settings = load(file).settings
    assert (settings.cluster, settings.sinks) == ("default", ())
    assert effective_characters(text) == set()

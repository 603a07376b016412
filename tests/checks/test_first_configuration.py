"""What `init` writes is a valid configuration, whatever the groups on the cluster are called."""

from pathlib import Path

import yaml

from streaming_app.checks.first_configuration import Cluster, first_configuration
from streaming_app.config.load import load
from tests.long.hostile import HOSTILE, effective_characters


def write(tmp_path: Path, cluster: Cluster, command_config: Path | None = None) -> tuple[Path, str]:
    file = tmp_path / "streams-groups.yaml"
    text = first_configuration("broker:9092", command_config, cluster)
    file.write_text(text, "utf-8")
    return file, text


def test_it_is_a_valid_configuration_with_the_connection(tmp_path: Path) -> None:
    properties = tmp_path / 'client "quoted" ${x}.properties'
    properties.touch()
    file, _ = write(tmp_path, ({}, None))
    assert load(file).settings.bootstrap_server == "broker:9092"
    _, text = write(tmp_path, ({}, None), properties)
    assert yaml.safe_load(text)["command_config"] == str(properties)


def test_no_group_id_leaves_its_comment(tmp_path: Path) -> None:
    hostile = {HOSTILE: "Stable", "x\nsinks: [evil]": "Stable", "y\r\ncluster: evil": "Stable"}
    file, text = write(tmp_path, (hostile, HOSTILE))
    settings = load(file).settings
    assert (settings.cluster, settings.sinks) == ("default", ())
    assert effective_characters(text) == set()

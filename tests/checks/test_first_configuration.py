"""What `check --write-config` writes is a valid configuration."""

from pathlib import Path

import yaml

from streaming_app.checks.first_configuration import first_configuration
from streaming_app.config.load import load


def test_it_is_a_valid_configuration_with_the_connection(tmp_path: Path) -> None:
    file = tmp_path / "streams-groups.yaml"
    file.write_text(first_configuration("broker:9092", None), "utf-8")
    settings = load(file).settings
    assert (settings.bootstrap_server, settings.cluster, settings.sinks) == ("broker:9092", "default", ())
    properties = tmp_path / 'client "quoted" ${x}.properties'
    text = first_configuration("broker:9092", properties)
    assert yaml.safe_load(text)["command_config"] == str(properties)

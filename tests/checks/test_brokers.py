"""The brokers without an authorizer, and the command."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from streaming_app.checks.brokers import check_brokers
from streaming_app.checks.first_configuration import first_configuration
from streaming_app.checks.result import FAILED
from streaming_app.cli.main import main
from streaming_app.kafka import connection
from streaming_app.kafka.connection import Admin
from streaming_app.sandbox.broker import LocalBroker
from tests.support.job_runner import streams_groups

pytestmark = pytest.mark.broker


def test_a_listener_that_clients_cannot_reach_is_found_though_the_bootstrap_server_answers(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"broker_id": 7, "host": "no-such-host.invalid", "port": 9092}
    monkeypatch.setattr(Admin, "describe_cluster", lambda _: {"brokers": [answer]})
    monkeypatch.setattr(Admin, "describe_configs", lambda *_, **__: {})
    found = {
        result.check: result
        for result in check_brokers({"bootstrap.servers": broker.bootstrap_server}, "__consumer_offsets")
    }
    assert found["broker 7"].status == FAILED
    assert "the host name cannot be resolved" in found["broker 7"].text
    assert "advertised.listeners" in found["broker 7"].remedy


def test_the_command_prints_a_line_each_and_its_exit_code_says_whether_one_failed(
    broker: LocalBroker, tmp_path: Path
) -> None:
    arguments = ["check", "--bootstrap-server", broker.bootstrap_server, "--warehouse", tmp_path / "warehouse"]
    good = streams_groups(*arguments)
    assert good.returncode == 0, good.stdout + good.stderr
    assert "ok       broker 1: " in good.stdout
    bad = streams_groups(*arguments, "--conf", "spark.driver.memory=1000g", "--json")
    assert bad.returncode == 1
    failures = [result for result in json.loads(bad.stdout) if result["status"] == FAILED]
    assert [failure["check"] for failure in failures] == ["memory"]


def test_without_a_broker_the_rest_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    server = ("--bootstrap-server", "127.0.0.1:1")
    result = CliRunner().invoke(main, ["check", *server, "--warehouse", str(tmp_path / "w")])
    assert result.exit_code == 1
    assert "failed   brokers: No Kafka broker answers at 127.0.0.1:1" in result.stdout
    assert "skipped  topic: no broker answers" in result.stdout


def test_a_configuration_is_written_that_check_accepts_and_does_not_replace(tmp_path: Path) -> None:
    arguments = ["check", "--bootstrap-server", "127.0.0.1:1", "--write-config", "streams-groups.yaml"]
    first = streams_groups(*arguments, cwd=tmp_path)
    assert first.stdout == "Wrote streams-groups.yaml. Next: streams-groups check --config streams-groups.yaml\n"
    checked = streams_groups("check", "--show-config", "--config", "streams-groups.yaml", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    again = streams_groups(*arguments, cwd=tmp_path)
    assert again.returncode == 1
    assert "streams-groups.yaml exists" in again.stderr
    properties = tmp_path / 'client "quoted" ${x}.properties'
    assert yaml.safe_load(first_configuration("broker:9092", properties))["command_config"] == str(properties)

"""`list --type`: GROUP TYPE PROTOCOL, as kafka-groups.sh --list prints them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming_app.cli.main import main
from tests.tables.test_newest_views import classic, commit, consumer, write
from tests.warehouses import append, make_warehouse


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    ready = consumer("ready", epoch=4, assignment=4, members=[(4, 0)])
    groups = [classic("app", members=1, protocol="stream"), classic("old", members=0, protocol_type="connect"), *ready]
    write(path, [*groups, commit("tool", 5), commit("\x1b[2J", 5)], cluster="default")
    return path


def run(warehouse: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["list", "--warehouse", str(warehouse), *arguments])


def test_all_groups_are_listed_with_their_types_and_protocols(warehouse: Path) -> None:
    lines = run(warehouse, "--type", "all").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["GROUP", "TYPE", "PROTOCOL"],
        ["\\x1b[2J", "Classic", "-"],
        ["app", "Classic", "consumer"],
        ["old", "Classic", "connect"],
        ["ready", "Consumer", "consumer"],
        ["tool", "Classic", "-"],
    ]


def test_types_and_states_limit_the_list(warehouse: Path) -> None:
    def listed(*arguments: str) -> list[list[str]]:
        return [line.split() for line in run(warehouse, *arguments).stdout.splitlines()[1:]]

    assert listed("--type", "Consumer,share") == [["ready", "Consumer", "consumer"]]
    assert listed("--type", "classic", "--state", "empty") == [
        ["\\x1b[2J", "Classic", "-", "Empty"],
        ["old", "Classic", "connect", "Empty"],
        ["tool", "Classic", "-", "Empty"],
    ]
    assert ["app", "Classic", "consumer", "-"] in listed("--type", "all", "--state")
    assert listed("--type", "streams") == []


def test_the_state_of_a_classic_group_with_members_is_what_the_brokers_said_last(tmp_path: Path) -> None:
    path = make_warehouse(tmp_path)
    write(path, [classic("moving", members=1), classic("old", members=0)], cluster="default")
    for cluster, state in (("default", "PreparingRebalance"), ("other", "Stable")):
        fact = {"kind": "group_state", "subject": "moving", "name": "state", "group_id": "moving"}
        append(path, "broker_facts", {**fact, "cluster": cluster, "value": state})

    def listed(state: str) -> list[list[str]]:
        return [line.split() for line in run(path, "--type", "all", "--state", state).stdout.splitlines()[1:]]

    assert listed("preparing_rebalance") == [["moving", "Classic", "consumer", "PreparingRebalance"]]
    assert listed("Empty") == [["old", "Classic", "consumer", "Empty"]]
    assert listed("Stable") == []


def test_a_type_that_does_not_exist_is_one_line(warehouse: Path) -> None:
    result = run(warehouse, "--type", "simple")
    assert result.exit_code == 1
    assert (
        result.stderr.splitlines()[-1]
        == "Error: No such type: simple. Valid types are: all, streams, consumer, classic, share"
    )


def test_without_a_type_only_streams_groups_are_listed(warehouse: Path) -> None:
    assert run(warehouse).stdout == ""

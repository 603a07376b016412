"""The command line with wrong usage, and commands that went."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import COMMANDS, main
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--group", "g", "--all-groups"],
        ["describe", "--group", "g", "--description", "--members"],
        ["describe", "--all-groups", "--topology", "--description"],
        ["why"],
        ["why", "g", "--group", "h"],
        ["history", "a", "b"],
        ["history", "g", "--topology", "--at", "1h"],
        ["history", "g", "--from", "1h"],
        ["check", "--demo"],
        ["check", "--show-config", "--fetch-jars", "jars"],
        ["check", "--write-config", "new.yaml"],
        ["run"],
        ["run", "--bootstrap-server", "no port"],
        ["run", "--bootstrap-server", "h:1", "--conf", "nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output


def test_a_group_is_an_argument_or_an_option(tmp_path: Path) -> None:
    append(make_warehouse(tmp_path), "groups", group_row("a"), group_row("b"), group_row("c"))
    result = CliRunner().invoke(main, ["describe", "b", "--group", "a", "b", "--json", "--warehouse", str(tmp_path)])
    assert [row["group_id"] for row in json.loads(result.stdout)] == ["a", "b"]


@pytest.mark.parametrize("command", ["describe", "why", "history", "lag", "migrate check"])
def test_an_unknown_group_and_no_warehouse_are_one_line(command: str, tmp_path: Path) -> None:
    path = make_warehouse(tmp_path / "w")
    write_heartbeat(path)
    for warehouse in (path, tmp_path / "none"):
        result = CliRunner().invoke(main, [*command.split(), "unknown", "--warehouse", str(warehouse)])
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.output
        assert result.stderr.startswith("Error: ")


def test_the_help_is_one_screen_in_blocks() -> None:
    lines = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout.splitlines()
    assert [line for line in lines if line.endswith(":")] == ["Options:", *(f"{block}:" for block in COMMANDS)]
    assert [line.split()[0] for line in lines[10:] if line.startswith("  ")] == list(main.commands)
    assert len(lines) < 32

"""The command line without a warehouse, a broker, or sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("arguments", [["list"], ["describe", "--all-groups"], ["sql", "SELECT 1"]], ids=lambda a: a[0])
def test_a_missing_warehouse_is_told_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    ran = CliRunner().invoke(main, [*arguments, "--warehouse", str(tmp_path)])
    assert ran.exit_code == 1
    assert ran.output.startswith("Error: No streams-groups warehouse at ")
    assert ran.output.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--group", "g", "--all-groups"],
        ["run"],
        ["run", "--bootstrap-server", "no port"],
        ["run", "--bootstrap-server", "h:1", "--conf", "nonsense"],
        ["run", "--bootstrap-server", "h:1", "--cluster", "a/b"],
        ["list", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 2
    assert "Error: " in ran.output


def test_decode_prints_good_lines_and_bad_ones_and_says_so() -> None:
    good = "0014000167\t000000000007" + "00"
    ran = CliRunner().invoke(main, ["decode"], input=f"{good}\nzz\t00\n0014000167\t\n")
    lines = ran.output.splitlines()
    assert ran.exit_code == 1
    assert '"type":20' in lines[0]
    assert '"error"' in lines[1]
    assert '"value":null' in lines[2]


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_stands_in_the_readme(command: str) -> None:
    assert f"streams-groups {command}" in README.read_text("utf-8")


@pytest.mark.parametrize("option", [name for option in main.commands["run"].params for name in option.opts])
def test_every_option_of_the_job_stands_in_the_readme(option: str) -> None:
    assert f"`{option}" in README.read_text("utf-8")

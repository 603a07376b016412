"""The command line without a warehouse or a broker, and with wrong usage."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app import cli
from streaming_app.cli.main import COMMANDS, main
from streaming_app.cli.removed import INSTEAD
from tests.support.job_runner import STREAMS_GROUPS


@pytest.mark.parametrize("arguments", [["list"], ["describe", "--all-groups"], ["sql", "SELECT 1"]], ids=lambda a: a[0])
def test_a_missing_warehouse_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [*arguments, "--warehouse", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output.startswith("Error: No streams-groups warehouse at ")
    assert result.output.count("\n") == 1


def test_a_warehouse_whose_first_job_starts_has_no_tables_yet(tmp_path: Path) -> None:
    (tmp_path / "_jobs").mkdir()
    (tmp_path / "_jobs" / "default.lock").touch()
    result = CliRunner().invoke(main, ["status", "--warehouse", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path} has no tables yet: its first job creates them once Spark runs\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--group", "g", "--all-groups"],
        ["describe", "--group", "g", "--description", "--bootstrap-server", "h:1"],
        ["describe", "--group", "g", "--topology", "--description"],
        ["describe", "--all-groups", "--topology", "--description", "--bootstrap-server", "h:1"],
        ["run"],
        ["run", "--bootstrap-server", "no port"],
        ["run", "--bootstrap-server", "h:1", "--conf", "nonsense"],
        ["run", "--bootstrap-server", "h:1", "--cluster", "a/b"],
        ["list", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output


def test_without_arguments_the_first_three_commands_are_named_and_exist() -> None:
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 0
    named = re.findall(r"^  streams-groups (\S+)", result.output, re.MULTILINE)
    assert named == ["demo", "check", "run"]
    assert set(named) <= set(main.commands)


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "streaming_app", "list", "--all"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("Usage: streams-groups list [OPTIONS]\n"), ran.stderr


def test_the_shell_completes_commands() -> None:
    words = {"COMP_WORDS": "streams-groups des", "COMP_CWORD": "1"}
    environment = {**os.environ, **words, "_STREAMS_GROUPS_COMPLETE": "bash_complete"}
    completed = subprocess.run(STREAMS_GROUPS, env=environment, capture_output=True, text=True, check=True)
    assert "describe" in completed.stdout


def test_every_module_of_a_command_is_collected() -> None:
    modules = {module.stem for module in Path(cli.__file__).parent.glob("*.py")}
    assert set(COMMANDS) == modules - {"__init__", "main", "options", "printing", "process", "removed", "warehouse"}


@pytest.mark.parametrize("path", INSTEAD)
def test_a_command_or_an_option_that_went_says_in_one_line_what_to_use(path: str) -> None:
    for arguments in (path.split(), [*path.split(), "x"]):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"Error: `{path}` was removed: {INSTEAD[path]}.\n"

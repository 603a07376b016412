"""The command line with wrong usage, and commands that went."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app import cli
from streaming_app.cli.main import COMMANDS, main
from streaming_app.cli.removed import INSTEAD


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "--group", "g", "--all-groups"],
        ["describe", "--group", "g", "--description", "--bootstrap-server", "h:1"],
        ["describe", "--all-groups", "--topology", "--description", "--bootstrap-server", "h:1"],
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


def test_every_module_of_a_command_is_collected() -> None:
    modules = {module.stem for module in Path(cli.__file__).parent.glob("*.py")}
    assert set(COMMANDS) == modules - {"__init__", "main", "options", "printing", "process", "removed", "warehouse"}


@pytest.mark.parametrize("path", INSTEAD)
def test_a_command_or_an_option_that_went_says_in_one_line_what_to_use(path: str) -> None:
    for arguments in (path.split(), [*path.split(), "x"]):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"Error: `{path}` was removed: {INSTEAD[path]}.\n"

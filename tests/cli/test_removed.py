"""Commands that went answer with what to use instead."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.cli.removed import INSTEAD


@pytest.mark.parametrize("path", INSTEAD)
def test_a_removed_command_says_in_one_line_what_to_use_instead_whatever_its_options(path: str) -> None:
    result = CliRunner().invoke(main, [*path.split(), "--from", "2d", "--help"])
    assert (result.exit_code, result.stderr) == (2, f"Error: The command `{path}` was removed: {INSTEAD[path]}.\n")


def test_a_command_that_never_was_is_unknown() -> None:
    result = CliRunner().invoke(main, ["rapport"])
    assert result.exit_code == 2
    assert "No such command 'rapport'" in result.stderr

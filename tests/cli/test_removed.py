"""Commands and options of 0.2.0 that went answer with one line, and keys are named at a start."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.cli.removed import INSTEAD


@pytest.mark.parametrize("path", INSTEAD)
def test_a_command_or_an_option_that_went_says_in_one_line_what_to_use(path: str) -> None:
    for arguments in (path.split(), [*path.split(), "x"]):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"Error: `{path}` was removed: {INSTEAD[path]}.\n"

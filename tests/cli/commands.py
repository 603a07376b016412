"""Commands on a warehouse, in this process."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from streaming_app.cli.main import main


def run(warehouse: Path | str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--warehouse", str(warehouse)])


def output(warehouse: Path, *arguments: str, code: int = 0) -> str:
    """Return what a command prints, also on stderr. It must end with this code."""
    result = run(warehouse, *arguments)
    assert result.exit_code == code, result.output
    return result.output


def words(warehouse: Path, *arguments: str) -> list[list[str]]:
    """Return the words of each line on stdout."""
    result = run(warehouse, *arguments)
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def as_json(warehouse: Path, *arguments: str) -> Any:
    result = run(warehouse, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)

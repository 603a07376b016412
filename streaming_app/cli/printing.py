"""What commands print: lines, rows and JSON, in which no character is left that a terminal obeys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO, Any

import click

from streaming_app.text import escape


class LineError(click.UsageError):
    """Wrong usage, printed as one line without the usage of the command."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the line."""
        self.ctx = None  # click prints the usage of a command that it knows
        super().show(file)


json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")


def echo(line: str, *, err: bool = False) -> None:
    """Print a line."""
    click.echo(escape(line), err=err)


def echo_error(line: str) -> None:
    """Print a line on stderr."""
    echo(line, err=True)


def echo_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as padded columns, with a header; nothing if there are none."""
    from streaming_app.queries.output import columns  # noqa: PLC0415 - not loaded by --help

    if rows:
        click.echo(columns(rows))


def echo_more(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as `echo_rows`, after an empty line that sets them apart from what was printed before."""
    if rows:
        click.echo("")
        echo_rows(rows)


def echo_either(value: object, rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print a value as JSON, or else the rows about it."""
    if as_json:
        echo_json(value)
    else:
        echo_rows(rows)


def echo_json(value: object) -> None:
    """Print a value as indented JSON."""
    from streaming_app.queries.output import as_json  # noqa: PLC0415 - not loaded by --help

    click.echo(as_json(value))

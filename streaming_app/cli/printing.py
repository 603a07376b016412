"""Prints lines, rows and JSON for commands, with escaped control characters."""

from collections.abc import Mapping, Sequence
from typing import IO, Any

import click

from streaming_app.queries import output
from streaming_app.text import escape


class LineError(click.UsageError):
    """Wrong usage, printed as one line without the usage of the command."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the line."""
        self.ctx = None  # with a context, click prints the usage of its command
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
    if rows:
        click.echo(output.columns(rows))


def echo_more(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print an empty line, and rows like `echo_rows`; nothing if there are none."""
    if rows:
        click.echo("")
        echo_rows(rows)


def echo_either(value: object, rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print the value as JSON, or the rows."""
    if as_json:
        echo_json(value)
    else:
        echo_rows(rows)


def echo_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(output.as_json(value))

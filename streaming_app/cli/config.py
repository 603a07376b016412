"""`streams-groups config`: the effective configuration, and the source of each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streaming_app.cli.options import handle_errors, job_options
from streaming_app.text import escape

if TYPE_CHECKING:
    from streaming_app.config.load import LoadedConfig


@click.command()
@job_options
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option("--check", is_flag=True, help="Only check for errors.")
@handle_errors
def config(loaded: LoadedConfig, form: str, check: bool) -> None:
    """Print the effective configuration: defaults, file, environment and flags merged. Secrets are redacted.

    In YAML a comment names the source of each value; the output can be used as a file once its secrets are filled in.
    Takes the options of run. Exits with 1 if the configuration is invalid.
    """
    from streaming_app.config.show import as_json, as_yaml  # noqa: PLC0415 - not loaded by --help

    if check:
        click.echo(escape(f"{loaded.file or 'The configuration'}: no errors"))
    else:
        click.echo(as_json(loaded) if form == "json" else as_yaml(loaded), nl=False)

"""`streams-groups config`: what is in force, and who said so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streaming_app.cli.options import explained, governed

if TYPE_CHECKING:
    from streaming_app.config.load import Loaded


@click.command()
@governed
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option("--check", is_flag=True, help="Only say whether there are errors.")
@explained
def config(loaded: Loaded, form: str, check: bool) -> None:
    """Print the configuration in force: defaults, the file, the environment, flags. Secrets are not shown.

    In YAML a comment tells where each value comes from; what is printed can be used as a file once its secrets are put
    in. Takes the options of run. Exits with 1 if something is wrong.
    """
    from streaming_app.config.show import as_json, as_yaml  # noqa: PLC0415 - --help needs none of it

    if check:
        click.echo(f"{loaded.file or 'The configuration'}: no errors")
    else:
        click.echo((as_json if form == "json" else as_yaml)(loaded), nl=False)

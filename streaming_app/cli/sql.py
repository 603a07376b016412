"""`streams-groups sql`: a query on the tables and views."""

from __future__ import annotations

import sys

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.argument("query")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@handle_errors
def sql(warehouse: Location, cluster: str, query: str, form: str) -> None:  # noqa: ARG001 - the query names clusters itself
    """Run a SQL QUERY (DataFusion's dialect) on the tables and views."""
    from rich.console import Console  # noqa: PLC0415 - not loaded by --help

    from streaming_app.queries import output  # noqa: PLC0415
    from streaming_app.tables.reader import WarehouseReader  # noqa: PLC0415

    names, rows = WarehouseReader(warehouse).columns_and_rows(query)
    if form == "json":
        click.echo(output.as_json(rows))
    elif form == "csv":
        click.echo(output.as_csv(names, rows), nl=False)
    else:
        console = Console(soft_wrap=not sys.stdout.isatty())
        console.print(output.terminal_table(names, rows))
        console.print(output.count(len(rows), "row"), style="dim")

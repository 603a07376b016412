"""`streams-groups sql`: a query on the tables and views."""

from __future__ import annotations

import click
from click.core import ParameterSource

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.cli.warehouse import open_clusters
from streaming_app.config import defaults
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.argument("query")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@handle_errors
def sql(warehouse: Location, cluster: str, query: str, form: str) -> None:
    """Run a SQL QUERY (DataFusion's dialect) on the tables and views; SHOW TABLES lists them.

    The rows of all clusters are read, or with --cluster those of one.
    """
    from streaming_app.queries import output  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries.sql import run_sql  # noqa: PLC0415

    source = click.get_current_context().get_parameter_source("cluster")
    is_given = source is not ParameterSource.DEFAULT or cluster != defaults.CLUSTER
    names, rows = run_sql(open_clusters(warehouse, cluster if is_given else None), query)
    if form == "json":
        click.echo(output.as_json(rows))
    elif form == "csv":
        click.echo(output.as_csv(names, rows), nl=False)
    else:
        output.print_table(names, rows)

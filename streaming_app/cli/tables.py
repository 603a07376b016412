"""The commands about the tables as a whole: `status` of the job that writes them, and `sql` over all of them."""

from __future__ import annotations

from datetime import datetime, timezone

import click
from click.core import ParameterSource

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.cli.printing import echo, echo_json, echo_more, json_option
from streaming_app.cli.warehouse import max_age_option, open_clusters, report_staleness
from streaming_app.config import defaults
from streaming_app.tables.location import Location

_ALERT_COLUMNS = {
    "severity": "SEVERITY",
    "rule": "RULE",
    "group_id": "GROUP",
    "pending_since": "SINCE",
    "summary": "SUMMARY",
}
"""As `alerts` shows them."""


@click.command()
@warehouse_options
@click.option("--check", is_flag=True, help="Exit with 1 if the tables are not up to date.")
@max_age_option
@json_option
@handle_errors
def status(warehouse: Location, cluster: str, check: bool, max_age: float, as_json: bool) -> None:
    """Show on one screen whether the job runs, how far behind it is, the firing alerts and the table sizes."""
    from streaming_app.queries.status import format_status, read_status  # noqa: PLC0415 - not loaded by --help

    now = datetime.now(timezone.utc)
    found = read_status(warehouse, cluster, now)
    if as_json:
        echo_json(found)
    else:
        for line in format_status(found, now):
            echo(line)
        firing = [{head: row[name] for name, head in _ALERT_COLUMNS.items()} for row in found["firing"]]
        sizes = [{name.upper(): value for name, value in row.items()} for row in found["tables"]]
        echo_more(firing)
        echo_more(sizes)
    if check and report_staleness(warehouse, cluster, max_age):
        raise SystemExit(1)


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
    from streaming_app.queries.warehouse import run_sql  # noqa: PLC0415

    source = click.get_current_context().get_parameter_source("cluster")
    is_given = source is not ParameterSource.DEFAULT or cluster != defaults.CLUSTER
    names, rows = run_sql(open_clusters(warehouse, cluster if is_given else None), query)
    if form == "json":
        echo_json(rows)
    elif form == "csv":
        click.echo(output.as_csv(names, rows), nl=False)
    else:
        output.print_table(names, rows)

"""The commands about the tables as a whole: `status` of the job that writes them, and `sql` over all of them."""

from datetime import datetime, timezone
from typing import Any

import click
from click.core import ParameterSource

from streaming_app.cli.options import duration_option, size, warehouse_options
from streaming_app.cli.printing import echo, echo_error, echo_json, echo_more, json_option
from streaming_app.cli.warehouse import max_age_option, open_cluster, report_staleness
from streaming_app.config import defaults
from streaming_app.queries import output
from streaming_app.queries.described import find_groups
from streaming_app.queries.status import format_status, read_status
from streaming_app.queries.user_sql import QueryLimits, run_limited
from streaming_app.tables.location import Location
from streaming_app.tables.request_files import ReleaseRequests
from streaming_app.text import GIB

_OF_ALERT = ("severity", "rule", "group_id", "since", "summary")


@click.command
@warehouse_options()
@click.option("--check", is_flag=True, help="Exit with 1 if the tables are not up to date.")
@max_age_option
@click.option(
    "--release",
    "released",
    multiple=True,
    metavar="GROUP",
    help="Only ask the running job to read the records of this group again, which is set aside, or differs in verify.",
)
@json_option
def status(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location, cluster: str, check: bool, max_age: float, released: tuple[str, ...], as_json: bool
) -> None:
    """Show the job and how far behind it is, open alerts, groups that are set aside, and sizes of tables."""
    if released:
        rows = find_groups(open_cluster(warehouse, cluster), cluster, released, with_classic=True)
        for group_id in (row["group_id"] for row in rows):
            ReleaseRequests(warehouse, cluster).add(group_id)
            echo(f"The job will read the records of {group_id} again within a minute.")
        return
    now = datetime.now(timezone.utc)
    found, heartbeat = read_status(warehouse, cluster, now)
    if as_json:
        echo_json(found)
    else:
        for line in format_status(found, now):
            echo(line)
        open_ones = [{output.title(name): row[name] for name in _OF_ALERT} for row in found["alerts"]]
        for rows in (open_ones, *(_upper(found[name]) for name in ("set_aside", "quarantined", "tables"))):
            echo_more(rows)
    if check and report_staleness(heartbeat, cluster, max_age):
        raise SystemExit(1)


def _upper(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name.upper(): value for name, value in row.items()} for row in rows]


@click.command
@warehouse_options()
@click.argument("query")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
@duration_option("--timeout", "60s", "How long the query may take; a number alone is seconds.")
@click.option(
    "--memory",
    default="4g",
    show_default=True,
    type=size(at_least=GIB),
    metavar="SIZE",
    help="Address space of its process; a sort that needs more than a quarter of it uses temporary files.",
)
def sql(  # noqa: PLR0913, PLR0917 - its options
    warehouse: Location, cluster: str, query: str, form: str, as_json: bool, timeout: float, memory: int
) -> None:
    """Run a SQL QUERY, one SELECT in DataFusion's dialect, on the tables and views; SHOW TABLES lists them.

    The rows of all clusters are read, or with --cluster those of one.
    """
    source = click.get_current_context().get_parameter_source("cluster")
    is_given = source is not ParameterSource.DEFAULT or cluster != defaults.CLUSTER
    names, rows, _, notes = run_limited(warehouse, cluster if is_given else None, query, QueryLimits(timeout, memory))
    for line in notes:
        echo_error(line)
    if as_json or form == "json":
        echo_json(rows)
    elif form == "csv":
        click.echo(output.as_csv(names, rows), nl=False)
    else:
        output.print_table(names, rows)

"""`streams-groups status`: the job, its lag, the firing alerts and the sizes of the tables."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.cli.warehouse import max_age_option, report_staleness
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
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@handle_errors
def status(warehouse: Location, cluster: str, check: bool, max_age: float, as_json: bool) -> None:
    """Show on one screen whether the job runs, how far behind it is, the firing alerts and the table sizes."""
    from streaming_app.queries import output  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries.status import read_status  # noqa: PLC0415

    now = datetime.now(timezone.utc)
    found = read_status(warehouse, cluster, now)
    if as_json:
        click.echo(output.as_json(found))
    else:
        _print(found, now)
    if check and report_staleness(warehouse, cluster, max_age):
        raise SystemExit(1)


def _print(found: dict[str, Any], now: datetime) -> None:
    from streaming_app.queries import output  # noqa: PLC0415 - as above
    from streaming_app.queries.status import format_status  # noqa: PLC0415

    for line in format_status(found, now):
        click.echo(output.cell(line))
    for rows, names in ((found["firing"], _ALERT_COLUMNS), (found["tables"], {})):
        shown = [
            {head: row[name] for name, head in (names or {name: name.upper() for name in row}).items()} for row in rows
        ]
        if shown:
            click.echo("\n" + output.columns(shown))

"""`streams-groups copies`: each task's copies, and which processes may be stopped now without a restore."""

from __future__ import annotations

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.cli.warehouse import open_cluster
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.option("--group", "group_id", required=True, metavar="GROUP", help="The group.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@handle_errors
def copies(warehouse: Location, cluster: str, group_id: str, as_json: bool) -> None:
    """Show the copies of each task of a group, and which processes may be stopped now without a restore."""
    from streaming_app.queries import output  # noqa: PLC0415 - not loaded by --help
    from streaming_app.queries.copies import read_report  # noqa: PLC0415

    report = read_report(open_cluster(warehouse, cluster), cluster, group_id)
    if as_json:
        click.echo(output.as_json(report.to_json()))
    elif report.copies:
        click.echo(output.columns(report.copy_rows()))
        click.echo("\n" + output.columns(report.process_rows()))
    else:
        click.echo(output.cell(f"{group_id} is {report.state}: no member has a task."))
    if report.lacks_offsets:
        line = "How far behind copies are is not known: the job asks the brokers, and needs Describe on the group."
        click.echo(output.cell(line), err=True)

"""`streams-groups describe`: the state, the members, the topology or the committed offsets of groups."""

from __future__ import annotations

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.cli.warehouse import open_cluster
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.option("--group", "group_ids", multiple=True, metavar="GROUP", help="A group; may be given more than once.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--state", "aspect", flag_value="state", default="state", help="State and epochs (the default).")
@click.option("--members", "aspect", flag_value="members", help="Members and their tasks.")
@click.option("--topology", "aspect", flag_value="topology", help="Subtopologies and their topics.")
@click.option("--offsets", "aspect", flag_value="offsets", help="Committed offsets and lag, of groups of any type.")
@click.option("--verbose", is_flag=True, help="More columns; with --state also which members a rebalance waits for.")
@click.option("--json", "as_json", is_flag=True, help="Everything known, as JSON.")
@handle_errors
def describe(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location,
    cluster: str,
    group_ids: tuple[str, ...],
    all_groups: bool,
    aspect: str,
    verbose: bool,
    as_json: bool,
) -> None:
    """Describe streams groups, like kafka-streams-groups.sh --describe."""
    from streaming_app.queries import groups, lag, output  # noqa: PLC0415 - not loaded by --help

    if bool(group_ids) == all_groups:
        raise click.UsageError("Give --group GROUP, once or more, or --all-groups.")
    if aspect == "offsets":
        offsets = lag.find_offsets(open_cluster(warehouse, cluster), cluster, None if all_groups else group_ids)
        if as_json:
            click.echo(output.as_json(offsets))
        elif offsets:
            click.echo(output.columns(lag.offset_rows(offsets, verbose=verbose)))
        return
    rows = groups.find_groups(open_cluster(warehouse, cluster), cluster, None if all_groups else group_ids)
    if as_json:
        shown = ({name: value for name, value in row.items() if name != "last_changes"} for row in rows)
        click.echo(output.as_json([row | {"waits_for": groups.waits_for(row)} for row in shown]))
    elif table := groups.ASPECTS[aspect](rows, verbose=verbose):
        click.echo(output.columns(table))
        if verbose and aspect == "state" and (awaited := groups.awaited_rows(rows)):
            click.echo("\n" + output.columns(awaited))
            for group_id, number in groups.not_named(rows):
                members = f"{output.count(number, 'more member')} {'is' if number == 1 else 'are'} not settled"
                click.echo(output.cell(f"{group_id}: {members}; --members --verbose shows all."))

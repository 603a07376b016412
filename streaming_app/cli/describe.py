"""`streams-groups describe`: the state, the members, the topology or the committed offsets of groups."""

from __future__ import annotations

import click

from streaming_app.cli.options import handle_errors, warehouse_options
from streaming_app.tables.location import Location


@click.command()
@warehouse_options
@click.option("--group", "group_ids", multiple=True, metavar="GROUP", help="A group; may be given more than once.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--state", "aspect", flag_value="state", default="state", help="State and epochs (the default).")
@click.option("--members", "aspect", flag_value="members", help="Members and their tasks.")
@click.option("--topology", "aspect", flag_value="topology", help="Subtopologies and their topics.")
@click.option("--offsets", "aspect", flag_value="offsets", help="Committed offsets and lag, of groups of any type.")
@click.option("--verbose", is_flag=True, help="More columns.")
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
    from streaming_app.tables.reader import WarehouseReader  # noqa: PLC0415

    if bool(group_ids) == all_groups:
        raise click.UsageError("Give --group GROUP, once or more, or --all-groups.")
    if aspect == "offsets":
        offsets = lag.find_offsets(WarehouseReader(warehouse), cluster, None if all_groups else group_ids)
        if as_json:
            click.echo(output.as_json(offsets))
        elif offsets:
            click.echo(output.columns(lag.offset_rows(offsets, verbose=verbose)))
        return
    rows = groups.find_groups(WarehouseReader(warehouse), cluster, None if all_groups else group_ids)
    if as_json:
        click.echo(output.as_json([{k: v for k, v in row.items() if k != "last_changes"} for row in rows]))
    elif table := groups.ASPECTS[aspect](rows, verbose=verbose):
        click.echo(output.columns(table))

"""The commands that list groups: `list` and `lag`. They load little, since a list has to come at once."""

from datetime import datetime, timezone

import click

from streaming_app.cli.options import group_options, warehouse_options
from streaming_app.cli.printing import echo_either, echo_json, echo_rows, json_option
from streaming_app.cli.warehouse import explain_unknown, open_cluster
from streaming_app.queries.group_list import list_groups
from streaming_app.queries.lag import BY, find_lag, to_json, to_row
from streaming_app.tables.location import Location


@click.command("list")
@warehouse_options()
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[STATE,...]",
    help="Show the state of each group; with STATE, only groups in one of these states.",
)
@click.option(
    "--type",
    "types",
    default=None,
    metavar="all|TYPE,...",
    help="List groups of these types with their protocols: streams, consumer, classic, share.",
)
@click.option(
    "--health",
    "verdicts",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[VERDICT,...]",
    help="Show since when the verdict holds, and what is pending; with VERDICT, such as Down,Stalled, only these.",
)
@json_option
def list_command(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location, cluster: str, states: str | None, types: str | None, verdicts: str | None, as_json: bool
) -> None:
    """List the applications of Kafka Streams and the verdict on each; with --type, groups of any type.

    With --state alone only streams groups, like kafka-streams-groups.sh --list --state.
    """

    def split(text: str | None) -> list[str] | None:
        return None if text is None else [one for one in text.split(",") if one.strip()]

    others = ("all_groups",) if states is None or verdicts is not None else ("broker_facts",)
    reader = open_cluster(warehouse, cluster, "groups", "group_health", *others)
    rows = list_groups(reader, cluster, split(states), split(verdicts), types.split(",") if types else None)
    if as_json:
        echo_json([{name.lower().replace("-", "_"): value for name, value in row.items()} for row in rows])
    else:
        echo_rows(rows)
    if states is not None and types is None:
        explain_unknown(reader, cluster, {row["STATE"] for row in rows})


@click.command
@warehouse_options()
@group_options
@click.option("--by", type=click.Choice([*BY]), default="group", show_default=True, help="Sum the lag by this.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Print only the N largest lags.")
@json_option
def lag(  # noqa: PLR0913, PLR0917 - one per option
    warehouse: Location, cluster: str, group_ids: tuple[str, ...], by: str, top: int | None, as_json: bool
) -> None:
    """Show the lag of committed offsets in offsets and seconds, the largest first. Without GROUP: of all groups."""
    sums = find_lag(open_cluster(warehouse, cluster, "lag", "inputs"), cluster, group_ids, by)[:top]
    now = datetime.now(timezone.utc)
    echo_either([to_json(one) for one in sums], [to_row(one, now) for one in sums], as_json=as_json)

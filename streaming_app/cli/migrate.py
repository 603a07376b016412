"""The command `migrate check`: whether a group can go to the streams protocol, and the steps there and back."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

from streaming_app.checks.migration import Facts, check_cluster, check_group, ways
from streaming_app.checks.migration_facts import ask_brokers, read_groups
from streaming_app.checks.result import FAILED, UNKNOWN, Result
from streaming_app.cli.options import broker_options, group_options, warehouse_options
from streaming_app.cli.printing import echo, echo_json, json_option
from streaming_app.cli.warehouse import open_cluster
from streaming_app.kafka.properties import client_properties
from streaming_app.tables.location import Location

_WIDTH = len(UNKNOWN)
_TITLES = {"steps": "To the streams protocol:", "way_back": "The way back:"}


@click.group
def migrate() -> None:
    """Prepare the way of a Kafka Streams application from one protocol to the other."""


@migrate.command("check")
@broker_options
@warehouse_options()
@group_options
@json_option
def check(  # noqa: PLR0913, PLR0917 - one per option
    bootstrap_server: str | None,
    command_config: Path | None,
    warehouse: Location,
    cluster: str,
    group_ids: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check whether groups can go from the classic protocol to the streams protocol (KIP-1071).

    Prints a line for each check, and then the steps there and back. Without GROUP, of every group of Kafka Streams with
    the classic protocol. What neither the log nor the brokers show is `not known`, with how to find out. Exits with 1
    if a check failed. Without bootstrap servers, here or in the configuration, nothing is known of the brokers.
    """
    rows = read_groups(open_cluster(warehouse, cluster, "groups"), cluster, group_ids)
    properties = client_properties(bootstrap_server, command_config) if bootstrap_server else None
    brokers = ask_brokers(properties, [one["group_id"] for one in rows]) if properties else Facts()
    results = [*check_cluster(brokers)]
    groups = [
        {"group_id": facts.row["group_id"], "protocol": facts.row["protocol"], "results": [*check_group(facts)]}
        | ways(facts, bootstrap_server or "HOST:PORT")
        for facts in (brokers._replace(row=row) for row in rows)
    ]
    counts = Counter(one.status for one in (*results, *(one for group in groups for one in group["results"])))
    if as_json:
        own = [{**group, "results": [one._asdict() for one in group["results"]]} for group in groups]
        echo_json({"cluster": [one._asdict() for one in results], "groups": own})
    else:
        _print(results)
        for group in groups:
            click.echo("")
            echo(f"{group['group_id']} ({group['protocol']} protocol)")
            _print(group["results"])
            for name in (one for one in _TITLES if one in group):
                click.echo("")
                echo(_TITLES[name])
                for number, step in enumerate(group[name], 1):
                    echo(f"{number}. {step['text']}")
                    for command in step["commands"]:
                        echo(f"   {command}")
        click.echo("")
        if not groups:
            echo("No group of Kafka Streams has the classic protocol.")
        echo(", ".join(f"{number} {status}" for status, number in counts.items()))
    raise SystemExit(1 if counts[FAILED] else 0)


def _print(results: Iterable[Result]) -> None:
    for one in results:
        echo(f"{one.status:<{_WIDTH}}  {one.line}")

"""`streams-groups init`: a commented configuration file for a cluster, after asking it."""

from __future__ import annotations

from pathlib import Path

import click

from streaming_app.cli.options import broker_options, handle_errors, require_server
from streaming_app.text import escape


@click.command()
@broker_options
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("streams-groups.yaml"),
    show_default=True,
    metavar="FILE",
    help="The file to write; it must not exist.",
)
@handle_errors
def init(bootstrap_server: str | None, command_config: Path | None, output: Path) -> None:
    """Write a first configuration for a cluster, with what was found on it as comments.

    Its streams groups, whether the brokers have a topology description plugin, and the ACLs of the principal.
    """
    require_server(bootstrap_server)
    from streaming_app.checks.brokers import check_brokers  # noqa: PLC0415 - --help needs none of these
    from streaming_app.checks.first_configuration import ask_cluster, first_configuration  # noqa: PLC0415
    from streaming_app.config import defaults  # noqa: PLC0415
    from streaming_app.kafka.error_lines import errors_as_lines  # noqa: PLC0415
    from streaming_app.kafka.properties import client_properties  # noqa: PLC0415

    server = bootstrap_server or ""
    properties = client_properties(server, command_config)
    results = list(check_brokers(properties, defaults.TOPIC))
    if results[0].check == "brokers":  # no broker answers, or kafka-python does not support the authentication
        raise click.ClickException(results[0].text)
    with errors_as_lines(properties, "init needs Describe on the cluster and on the groups"):
        found = ask_cluster(properties)
    text = first_configuration(server, command_config, found, results)
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{output} exists: give another --output, or remove it") from None
    click.echo(escape(f"Wrote {output}. Next: streams-groups check --config {output}"))

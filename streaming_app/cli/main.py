"""The `streams-groups` command: collects the commands. A new one is its module and an entry in `COMMANDS`."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from streaming_app.standard_streams import open_standard_streams

COMMANDS = (
    "run",
    "init",
    "check",
    "demo",
    "list_groups",
    "describe",
    "lag",
    "copies",
    "diff",
    "history",
    "sql",
    "alerts",
    "silence",
    "status",
    "web",
    "verify",
    "config",
    "decode",
    "jars",
)
"""The modules of the commands. Each contains a command of the same name and imports its dependencies when it runs."""


@click.group(
    invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="streams-groups", prog_name="streams-groups")
@click.pass_context
def main(context: click.Context) -> None:
    """The state of every Kafka streams group, decoded from __consumer_offsets into Delta tables."""
    open_standard_streams()
    if sys.flags.optimize:
        raise click.ClickException("kafka-python does not work without assertions: unset PYTHONOPTIMIZE, or omit -O")
    if context.invoked_subcommand is None:
        click.echo(
            """\
The state of every Kafka streams group, decoded from __consumer_offsets into Delta tables. To begin:

  streams-groups demo
      without a cluster: starts a local broker with groups, runs the job, prints the tables
  streams-groups check --bootstrap-server HOST:PORT
      what this machine and your cluster lack: Java, jars, ACLs, a warehouse that can be written
  streams-groups run --bootstrap-server HOST:PORT
      the job; then, in the same directory of a second terminal: streams-groups list --state

All commands: streams-groups --help
""",
            nl=False,
        )


for _name in COMMANDS:
    main.add_command(getattr(import_module(f"streaming_app.cli.{_name}"), _name))

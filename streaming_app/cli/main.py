"""The `streams-groups` command: collects the commands. A new one has an entry in `COMMANDS`."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from streaming_app.cli.process import open_standard_streams, return_freed_memory
from streaming_app.cli.removed import CommandGroup

COMMANDS = {
    "job": ("run", "init", "check", "demo"),
    "groups": ("list_groups", "describe", "history"),
    "lag": ("lag",),
    "alerts": ("alerts",),
    "health": ("why",),
    "tables": ("status", "sql"),
    "quarantine": ("quarantine",),
    "verify": ("verify",),
    "web": ("web",),
    "decode": ("decode",),
    "jars": ("jars",),
}
"""By module, the names in it of the commands; each imports its dependencies when it runs."""


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="streams-groups", prog_name="streams-groups")
@click.pass_context
def main(context: click.Context) -> None:
    """The state of every Kafka streams group, decoded from __consumer_offsets into Delta tables."""
    open_standard_streams()
    return_freed_memory()
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


for _module, _names in COMMANDS.items():
    for _name in _names:
        main.add_command(getattr(import_module(f"streaming_app.cli.{_module}"), _name))

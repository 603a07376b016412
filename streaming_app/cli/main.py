"""The `streams-groups` command: collects the commands. A new one has an entry in `COMMANDS`."""

import sys
from importlib import import_module

import click

from streaming_app.cli.process import (
    decode_arguments,
    escape_what_cannot_be_encoded,
    open_standard_streams,
    return_freed_memory,
)

COMMANDS = {
    "Run": {"run": "job", "check": "job", "demo": "job"},
    "Look": {
        "list": "groups",
        "describe": "groups",
        "why": "groups",
        "history": "history",
        "lag": "groups",
        "alerts": "alerts",
        "sql": "tables",
        "web": "web",
    },
    "Operate": {"status": "tables", "verify": "verify", "decode": "decode"},
}
"""Block of --help -> command -> its module. Commands import their dependencies when they run."""


class _Program(click.Group):
    """The program: its commands are listed in blocks."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        return super().parse_args(ctx, decode_arguments(args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write a line for each command."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for block, names in COMMANDS.items():
            with formatter.section(block):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


@click.group(
    cls=_Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="streams-groups", prog_name="streams-groups")
@click.pass_context
def main(context: click.Context) -> None:
    """The state of every Kafka streams group, decoded from __consumer_offsets into Delta tables."""
    open_standard_streams()
    escape_what_cannot_be_encoded()
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


for _name, _module in (one for _block in COMMANDS.values() for one in _block.items()):
    _commands = vars(import_module(f"streaming_app.cli.{_module}"))
    main.add_command(_commands.get(_name) or _commands[f"{_name}_groups"])

"""The `streams-groups` command: collects the commands. A new one has an entry in `COMMANDS`."""

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from streaming_app.cli import process

COMMANDS = {
    "Run": {
        "run": ("job", "Run the job."),
        "check": ("check", "Check what the job needs to start."),
        "demo": ("demo", "Run the job on a local broker with groups."),
    },
    "Look": {
        "list": ("lists", "List groups and the verdict on each."),
        "describe": ("groups", "Describe groups as Kafka's own tool does."),
        "why": ("groups", "Explain whether a group processes its input."),
        "history": ("history", "Show what happened to a group."),
        "lag": ("lists", "Show the lag of committed offsets."),
        "alerts": ("alerts", "Show the open alerts."),
        "sql": ("tables", "Run a SQL query on the tables."),
        "web": ("web", "Serve the page."),
    },
    "Operate": {
        "status": ("tables", "Show the job, its alerts and its tables."),
        "migrate": ("migrate", "Prepare the way to the streams protocol."),
        "verify": ("verify", "Compare the tables with the brokers."),
        "decode": ("decode", "Decode records to JSON."),
    },
}
"""Block of --help -> command -> its module, which is only loaded for its commands, and what it does."""
_ENTRIES = {name: entry for block in COMMANDS.values() for name, entry in block.items()}


class _Commands(Mapping[str, click.Command]):
    """The commands, each loaded when it is first needed."""

    def __getitem__(self, name: str) -> click.Command:
        found = vars(import_module(f"streaming_app.cli.{_ENTRIES[name][0]}"))
        command: click.Command = found.get(f"{name}_command") or found[name]
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_ENTRIES)

    def __len__(self) -> int:
        return len(_ENTRIES)


class _Program(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Prepare the process, before it loads a command, and parse the arguments."""
        process.open_standard_streams()
        process.escape_what_cannot_be_encoded()
        process.return_freed_memory()
        if sys.flags.optimize:
            raise click.ClickException(
                "kafka-python does not work without assertions: unset PYTHONOPTIMIZE, or omit -O"
            )
        return super().parse_args(ctx, process.decode_arguments(args))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write a line for each command."""
        for block, entries in COMMANDS.items():
            with formatter.section(block):
                formatter.write_dl([(name, text) for name, (_, text) in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, without loading them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in _ENTRIES.items() if name.startswith(incomplete)]


@click.group(
    cls=_Program,
    commands=_Commands(),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="streams-groups", prog_name="streams-groups")
@click.pass_context
def main(context: click.Context) -> None:
    """The state of every Kafka Streams application of a cluster, with either protocol, from __consumer_offsets."""
    if context.invoked_subcommand is None:
        click.echo(
            """\
The state of every Kafka Streams application of a cluster, with either protocol, decoded from __consumer_offsets
into Delta tables. To begin:

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

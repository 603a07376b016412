"""The `streams-groups` command: collects the commands. A new one is its module and an entry in `COMMANDS`."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS = (
    "run",
    "demo",
    "list_groups",
    "describe",
    "lag",
    "diff",
    "sql",
    "alerts",
    "silence",
    "status",
    "verify",
    "config",
    "decode",
)
"""The modules of the commands. Each contains a command of the same name and imports its dependencies when it runs."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="streams-groups", prog_name="streams-groups")
def main() -> None:
    """The state of every Kafka streams group, decoded from __consumer_offsets into Delta tables."""


for _name in COMMANDS:
    main.add_command(getattr(import_module(f"streaming_app.cli.{_name}"), _name))

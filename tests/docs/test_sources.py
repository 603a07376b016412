"""The table of what the sources describe names commands, options, columns, rules and metrics that exist."""

import re

import click

from streaming_app.alerts.catalog import rules
from streaming_app.cli.main import main
from streaming_app.tables.definitions import tables, views
from tests.support.documents import DOCS, ROOT

TEXT = (DOCS / "facts.md").read_text("utf-8").split("## What the sources describe")[1].split("\n## ")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TEXT.splitlines() if line.startswith("|")][
    2:
]
NAMED = [(row[1], name) for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])]
"""What the sources describe, and each name that says where it is shown."""
COLUMNS = {f"{one.name}.{column}" for one in (*tables(), *views()) for column in (*one.names, *one.also, "group_id")}
TABLES = {one.name for one in (*tables(), *views())}
METRICS = set(re.findall(r"`(streams_groups?\w*)", (ROOT / "deploy" / "METRICS.md").read_text("utf-8")))


def missing(name: str) -> str | None:
    """Return what of this name does not exist; None if all does, or if it is no name of ours."""
    command, *options = name.split()
    if command in main.commands and (options or "." not in command):
        known = {flag for one in command_params(command) for flag in one.opts}
        return next((option for option in options if option not in known), None)
    table = name.partition(".")[0]
    if table in TABLES and "." in name:
        return None if name in COLUMNS else name
    if name.startswith("StreamsGroup") and name != "StreamsGroupDescribe":
        return None if name in rules() else name
    return name if name.startswith("streams_group") and name not in METRICS else None


def command_params(command: str) -> list[click.Parameter]:
    return main.commands[command].params


def test_every_command_option_column_rule_and_metric_exists() -> None:
    assert [(item, name) for item, name in NAMED if missing(name)] == []

"""The table "What the sources describe": what it names exists, and its commands print it.

The warehouse is the sample, with a group that has what few groups have.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.alerts.catalog import rules
from streaming_app.cli.main import main
from streaming_app.tables.definitions import tables, views
from tests.support.documents import DOCS, ROOT
from tests.support.rows import member_row
from tests.support.sample_groups import RICH, WRITTEN, group, write_sample
from tests.support.warehouses import append

pytestmark = pytest.mark.slow

TEXT = (DOCS / "facts.md").read_text("utf-8").split("## What the sources describe")[1].split("\n## ")[0]
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in TEXT.splitlines() if line.startswith("|")][
    2:
]
NAMED = [(row[1], name) for row in ROWS for name in re.findall(r"`([^`]+)`", row[2])]
"""What the sources describe, and each name that says where it is shown."""
COLUMNS = {f"{one.name}.{column}" for one in (*tables(), *views()) for column in (*one.names, *one.also, "group_id")}
TABLES = {one.name for one in (*tables(), *views())}
METRICS = set(re.findall(r"`(streams_groups?\w*)", (ROOT / "deploy" / "METRICS.md").read_text("utf-8")))
FULL = "full"
PRINTED = {
    "describe --copies": ["RESTORING", "STANDBY", "WARMUP"],
    "describe --members --verbose": ["rack-a", "zone=z1", "full.example:7070", "PENDING-REVOCATION"],
    "describe --topology": ["by-customer-repartition", "audit-.*"],
    "list --type --state": ["Share", "Classic", "Empty"],
}
"""What commands of the table print of the sample beyond Kafka's own tool, which `job/test_kafka_tools` compares."""


def missing(name: str) -> str | None:
    """Return what of this name does not exist; None if all does, or if it is no name of ours."""
    command, *options = name.split()
    if command in main.commands and (options or "." not in command):
        known = {flag for one in main.commands[command].params for flag in one.opts}
        return next((option for option in options if option not in known), None)
    table = name.partition(".")[0]
    if table in TABLES and "." in name:
        return None if name in COLUMNS else name
    if name.startswith("StreamsGroup") and name != "StreamsGroupDescribe":
        return None if name in rules() else name
    return name if name.startswith("streams_group") and name not in METRICS else None


def test_every_command_option_column_rule_and_metric_exists() -> None:
    assert [(item, name) for item, name in NAMED if missing(name)] == []


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, and a group whose member has everything that the table names."""
    path = tmp_path_factory.mktemp("facts") / "warehouse"
    write_sample(path, WRITTEN, hostile=False)
    member = member_row("m1", instance_id="i1", rack_id="rack-a", client_tags={"zone": "z1"}, previous_member_epoch=1)
    member["user_endpoint"] = "full.example:7070"
    append(path, "groups", group(FULL, "Stable", WRITTEN, 9, members=[member]))
    return path


@pytest.mark.parametrize(("command", "words"), PRINTED.items(), ids=PRINTED)
def test_a_command_of_the_table_prints_what_it_names(command: str, words: list[str], warehouse: Path) -> None:
    name, *options = command.split()
    if name == "describe":
        options = [FULL if "rack-a" in words else RICH, *options]
    else:
        options.insert(1, "all")
    result = CliRunner().invoke(main, [name, *options, "--warehouse", str(warehouse)], env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    assert [word for word in words if word not in result.stdout] == []

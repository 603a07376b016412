"""The table "What the sources describe": what it names exists, and its commands print it.

The warehouse is the sample, with a group that has what few groups have.
"""

from __future__ import annotations

import re
from datetime import timedelta
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
    "describe --members": ["orders-member-0", "ACTIVE: "],
    "describe --members --verbose": ["rack-a", "zone=z1", "full.example:7070", "PENDING-REVOCATION"],
    "describe --offsets": ["OFFSET-LAG", "18240"],
    "describe --offsets --verbose": ["CURRENT-OFFSET", "LOG-END-OFFSET", "1204331"],
    "describe --state": ["Reconciling", "COORDINATOR (ID)", "ASSIGNOR"],
    "describe --state --verbose": ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH"],
    "describe --topology": ["by-customer-repartition", "audit-.*"],
    "describe --topology --description": ["Topologies:"],
    "describe --topology --verbose": ["PARTITIONS", "by-customer-repartition"],
    "history": ["member_left"],
    "history --topology": [RICH],
    "lag": ["18240"],
    "list": [RICH],
    "list --state": ["Reconciling"],
    "list --type": ["Share", "Classic"],
    "list --type --state": ["Classic", "Empty"],
    "status": ["groups", "Reconciling"],
}
"""Words that a command of the table prints of the sample."""
NEEDS_A_BROKER = {"check", "decode", "verify"}
"""Commands of the table that other tests run, with a broker or without tables."""


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
    """The sample, and a group whose member and description have everything that the table names."""
    path, at = tmp_path_factory.mktemp("facts") / "warehouse", WRITTEN - timedelta(hours=1)
    write_sample(path, WRITTEN, hostile=False)
    member = member_row("m1", instance_id="i1", rack_id="rack-a", client_tags={"zone": "z1"}, previous_member_epoch=1)
    member["user_endpoint"] = "full.example:7070"
    append(path, "groups", group(FULL, "Stable", WRITTEN, 9, members=[member]))
    described = {"status": "AVAILABLE", "text": "Topologies:\n   Sub-topology: 0\n"}
    newest = {"topology_epoch": 0, "content_hash": "h", "is_newest": True, "fetched_at": at, "asked_at": at}
    append(path, "descriptions", {"group_id": FULL, **newest, **described})
    return path


def test_each_command_of_the_table_has_words_that_it_prints() -> None:
    named = {name for _, name in NAMED if name.split()[0] in main.commands and "." not in name}
    assert named - PRINTED.keys() - NEEDS_A_BROKER == set()
    assert PRINTED.keys() <= named


@pytest.mark.parametrize(("command", "words"), PRINTED.items(), ids=PRINTED)
def test_a_command_of_the_table_prints_what_it_names(command: str, words: list[str], warehouse: Path) -> None:
    name, *options = command.split()
    if name in {"describe", "history"}:
        options = [FULL if {"rack-a", "Topologies:"} & set(words) else RICH, *options]
    if "--type" in options:
        options.insert(options.index("--type") + 1, "all")
    result = CliRunner().invoke(main, [name, *options, "--warehouse", str(warehouse)], env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    assert [word for word in words if word not in result.stdout] == []

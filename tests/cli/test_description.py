"""`describe --description`, from the table."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming_app.cli.main import main
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse

AT = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
TEXT = "Topologies:\n   Sub-topology: 0\n    Source: s (topics: [orders])\n      --> none\n\n"


def description(group_id: str, days: int = 0, **columns: Any) -> dict[str, Any]:
    made = {"topology_epoch": 0, "content_hash": str(days), "is_newest": True, "status": "AVAILABLE", "text": TEXT}
    return {"group_id": group_id, **made, "node_count": 1, "fetched_at": AT + timedelta(days=days), **columns}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    status = {"topology_epoch": 0, "description_status": "CURRENT"}
    names = ("stored", "lost", "large", "denied")
    append(path, "groups", *(group_row(name, **status) for name in names))
    append(path, "groups", group_row("replaced", topology_epoch=1, description_status="STALE"))
    for name, without in (("never", "NEVER_STORED"), ("rejected", "FAILED"), ("pushed", "UNCERTAIN")):
        append(path, "groups", group_row(name, topology_epoch=0, description_status=without))
    before = description("stored", -1, is_newest=False, text="an earlier one\n")
    large = description("large", text=None, node_count=50_000, truncated=True)
    lost = description("lost", status="NOT_STORED")
    append(path, "descriptions", before, description("stored"), lost, large, description("replaced"))
    write_heartbeat(path)
    return path


def describe(warehouse: Path, group_id: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["describe", group_id, "--description", *options, "--warehouse", str(warehouse)])


@pytest.mark.parametrize(
    ("group_id", "end"),
    [
        ("stored", "."),
        ("lost", "; asked again, the broker said NOT_STORED."),
        ("replaced", ", no longer the one of the group's topology."),
    ],
)
def test_the_newest_description_is_printed_and_which_one_it_is(warehouse: Path, group_id: str, end: str) -> None:
    result = describe(warehouse, group_id, "--topology")
    assert (result.exit_code, result.stdout) == (0, TEXT)
    assert result.stderr == f"Description of topology epoch 0, fetched at 2026-11-22 09:00:00Z{end}\n"
    printed = json.loads(describe(warehouse, group_id, "--json").stdout)
    assert (printed["text"], printed["is_current"]) == (TEXT, group_id != "replaced")


@pytest.mark.parametrize(
    ("group_id", "line"),
    [
        ("never", "No topology description of never: no client has pushed one that the brokers store (NEVER_STORED)"),
        ("rejected", "No topology description of rejected: the brokers' plugin rejected a client's description"),
        ("pushed", "No topology description of pushed: a client has pushed one, but it is not known whether"),
        ("denied", "No topology description of denied: the job has not fetched it yet, or needs Describe on the group"),
        ("large", "The description has 50,000 nodes, too many to print"),
        ("unknown", "No group 'unknown'"),
    ],
)
def test_none_is_a_line_that_says_why(warehouse: Path, group_id: str, line: str) -> None:
    result = describe(warehouse, group_id)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: {line}")

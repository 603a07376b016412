"""`history --topology`: what changed between two topologies of a group, from the tables."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming_app.cli.main import main
from streaming_app.groups.topology import topology_hash
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import subtopology_row
from tests.support.warehouses import append, make_warehouse

AT = datetime(2026, 11, 1, 8, tzinfo=timezone.utc)


def subtopology(*source_topics: str, changelogs: Mapping[str, int] | None = None) -> dict[str, Any]:
    return subtopology_row(source_topics=list(source_topics), changelogs=changelogs or {})


FIRST = [subtopology("orders", changelogs={"app-seen-changelog": 6})]
SECOND = [subtopology("orders", "payments", changelogs={"app-seen-changelog": 12})]


class Tables:
    """A warehouse in which the test writes a group, and its topologies with the days since `AT`."""

    def __init__(self, path: Path) -> None:
        self.path = make_warehouse(path)
        write_heartbeat(self.path)

    def write(self, group_id: str, *topologies: tuple[int, list[Any]], newest: list[Any] | None = None) -> None:
        epochs = [{"topology_epoch": 0, "first_seen_at": AT}]
        group = {"group_id": group_id, "state": "Empty", "subtopologies": newest, "topology_epochs": epochs}
        append(self.path, "groups", {**group, "topology_epoch": None if newest is None else 0})
        for offset, (days, subtopologies) in enumerate(topologies):
            row = {"topology_hash": topology_hash(subtopologies), "topology_epoch": 0, "subtopologies": subtopologies}
            first_seen_at = AT + timedelta(days=days)
            append(
                self.path, "topologies", {**row, "group_id": group_id, "first_seen_at": first_seen_at, "offset": offset}
            )

    def diff(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["history", "--topology", *arguments, "--warehouse", str(self.path)])


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = Tables(tmp_path_factory.mktemp("warehouse"))
    made.write("payments", (0, FIRST), (9, SECOND))
    made.write("back", (0, FIRST), (9, SECOND), (10, FIRST), (11, FIRST))
    made.write("new", (3, FIRST))
    made.write("of-older-release", newest=FIRST)
    made.write("without-topology")
    return made


def test_the_newest_topology_is_compared_with_the_one_before(tables: Tables) -> None:
    result = tables.diff("--group", "payments")
    before, after, *rows = result.output.splitlines()
    assert result.exit_code == 0
    assert before == f"from  {topology_hash(FIRST)}, epoch 0, since 2026-11-01 08:00:00Z"
    assert after == f"to    {topology_hash(SECOND)}, epoch 0, since 2026-11-10 08:00:00Z"
    assert [row.split() for row in rows] == [
        ["CHANGE", "WHAT", "SUBTOPOLOGY", "NAME", "ATTRIBUTE", "OLD", "NEW"],
        ["added", "source", "topic", "0", "payments", "-", "-", "-"],
        ["changed", "changelog", "topic", "0", "app-seen-changelog", "partitions", "6", "12"],
    ]
    printed = json.loads(tables.diff("--group", "payments", "--json").output)
    assert [printed[one]["topology_hash"] for one in ("from", "to")] == [topology_hash(FIRST), topology_hash(SECOND)]
    assert [(one["change"], one["name"], one["new"]) for one in printed["changes"]] == [
        ("added", "payments", None),
        ("changed", "app-seen-changelog", "12"),
    ]


def test_a_limit_is_how_many_changes_are_shown(tables: Tables) -> None:
    lines = tables.diff("--group", "payments", "--limit", "1").output.splitlines()
    assert (len(lines), lines[-1]) == (5, "1 more change, see --limit.")
    assert len(json.loads(tables.diff("--group", "payments", "--limit", "1", "--json").output)["changes"]) == 1


@pytest.mark.parametrize(
    ("time", "begin"),
    [
        ("2026-11-10T08:00Z", f"from  {topology_hash(SECOND)}, epoch 0, since 2026-11-10"),
        ("2026-11-11 08:00:00+00:00", f"no difference: topology {topology_hash(FIRST)}, epoch 0, since 2026-11-11"),
        ("2026-11-02", "no difference:"),  # it came back
        ("2026-10-02", "No topology of that time is known: the first is of 2026-11-01"),
    ],
)
def test_the_topology_at_a_time_is_compared_with_the_newest(tables: Tables, time: str, begin: str) -> None:
    result = tables.diff("--group", "back", "--from", time)
    assert result.exit_code == 0
    assert result.output.startswith(begin)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["unknown"], "No group 'unknown' in cluster 'default': `streams-groups list --type all` shows all"),
        (["new"], "Group 'new' has had only one topology, since 2026-11-04 08:00:00Z"),
        (["of-older-release"], "Group 'of-older-release' has had only one topology, since 2026-11-01 08:00:00Z"),
        (["without-topology"], "Group 'without-topology' has no topology in the log yet"),
    ],
)
def test_no_group_and_no_earlier_topology_are_one_line_each(tables: Tables, arguments: list[str], line: str) -> None:
    result = tables.diff("--group", *arguments)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert result.output.startswith(f"Error: {line}")


def description(group_id: str, days: int, *nodes: tuple[str, str]) -> dict[str, Any]:
    """Return a row of a description that was stored so many days after `AT`."""
    return {
        "group_id": group_id,
        "topology_epoch": 0,
        "content_hash": str(nodes),
        "stored_at": AT + timedelta(days=days),
        "description_nodes": [{"kind": kind, "node": name, "subtopology_id": "0"} for kind, name in nodes],
    }


def test_processors_and_stores_of_the_stored_descriptions_are_compared(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.write("payments", (0, FIRST), (9, SECOND))
    append(tables.path, "descriptions", description("payments", 9, ("processor", "map"), ("store", "totals")))
    last = tables.diff("--group", "payments").output.splitlines()[-1]
    assert last == "Processors and stores are not compared: no description of the earlier one is known."
    append(tables.path, "descriptions", description("payments", 1, ("processor", "map"), ("topic", "orders")))
    rows = [row.split()[:4] for row in tables.diff("--group", "payments").output.splitlines()[3:]]
    assert ["added", "store", "0", "totals"] in rows
    assert not [row for row in rows if "orders" in row or "map" in row]
    assert json.loads(tables.diff("--group", "payments", "--json").output)["descriptions_compared"]

"""`describe --stores`: which instance has which partition of a store, and where that is not known."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from streaming_app.groups.description import graph_of
from streaming_app.groups.task_copies import TaskCopy
from streaming_app.queries.described import search_groups
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.task_copies_table import TaskCopiesTable
from tests.cli.commands import as_json, run, words
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row, member_row, subtopology_row, task_row
from tests.support.warehouses import append, make_warehouse

NOW = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
TITLES = "GROUP STORE SUBTOPOLOGY PARTITION ROLE ENDPOINT HOST PROCESS LAG READY CHANGELOG END"
CHANGELOGS = ["orders-counts-changelog", "orders-sums-changelog"]


def node(name: str, kind: int = 2, **fields: Any) -> dict[str, Any]:
    return {"name": name, "node_type": kind, "source_topics": [], "sink_topic": None, "stores": [], **fields}


DESCRIPTION = {
    "subtopologies": [
        {"subtopology_id": "0", "nodes": [node("s", 1, source_topics=["in"], successors=[])]},
        {"subtopology_id": "1", "nodes": [node("p", stores=["counts", "cache"], successors=[])]},
        {"subtopology_id": "2", "nodes": [node("q", stores=["sums"], successors=[])]},
    ],
    "global_stores": [
        {"source": node("g", 1, successors=["h"]), "processor": node("h", stores=["rates"], successors=[])}
    ],
}


def group(name: str) -> dict[str, Any]:
    tasks = [("a", "1_0", "active"), ("b", "1_0", "standby"), ("a", "1_1", "standby"), ("b", "1_1", "active")]
    return group_row(
        name,
        members=[
            member_row(f"m-{one}", process_id=f"p-{one}", client_host=f"/{one}", user_endpoint=f"{one}.example:7070")
            for one in "ab"
        ],
        assignments=[task_row(f"m-{one}", task, role, current=True) for one, task, role in tasks],
        subtopologies=[
            subtopology_row("1", changelogs=[f"{name}-counts-changelog"]),
            subtopology_row("2", changelogs=[f"{name}-sums-changelog"]),
        ],
        topology_epoch=0,
    )


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    classic = {"group_type": "classic", "protocol": "classic"}
    parts = [subtopology_row("0", state_changelog_topics=None, has_state=True)]
    two = [*parts, subtopology_row("1", state_changelog_topics=None)]
    append(
        path,
        "groups",
        group("orders"),
        group("derived"),
        group_row("old", "Stable", subtopologies=parts, **classic),
        group_row("older", "Stable", subtopologies=two, **classic),
        group_row("plain", "Stable", subtopologies=[subtopology_row("0")]),
    )
    newest = {"group_id": "orders", "topology_epoch": 0, "is_newest": True, "status": "AVAILABLE", "fetched_at": NOW}
    append(path, "descriptions", {**newest, **graph_of(DESCRIPTION)})
    for name in ("old", "older"):
        fact = {"kind": "changelog", "subject": f"{name}-counts-changelog", "name": "partitions", "value": "2"}
        append(path, "broker_facts", {**fact, "group_id": name, "observed_at": NOW})
    told, ready = {"stateful": True, "reported_at": NOW}, NOW + timedelta(minutes=1)
    copies = [("standby", 0, 80, 90, None), ("restoring", 1, 5, 70, ready)]
    TaskCopiesTable(path, "default").replace(
        TaskCopy("orders", "m-b", "p-b", "b", role, "1", at, task_offset=offset, task_end_offset=end, **told)._replace(
            lag=end - offset, ready_at=ready_at
        )
        for role, at, offset, end, ready_at in copies
    )
    write_heartbeat(path)
    return path


def test_a_store_is_described_with_who_has_each_partition_and_the_end_of_its_changelog(warehouse: Path) -> None:
    header, *rows = words(warehouse, "describe", "orders", "--stores", "counts")
    assert " ".join(header) == TITLES
    assert [row[2:10] + row[-1:] for row in rows] == [
        ["1", "0", "ACTIVE", "a.example:7070", "a", "p-a", "-", "-", "90"],
        ["1", "0", "STANDBY", "b.example:7070", "b", "p-b", "10", "-", "90"],
        ["1", "1", "RESTORING", "b.example:7070", "b", "p-b", "65", "2026-11-22T09:01:00.000Z", "70"],
        ["1", "1", "STANDBY", "a.example:7070", "a", "p-a", "-", "-", "70"],
    ]
    assert {row[-2] for row in rows} == {"orders-counts-changelog"}


def test_the_stores_of_a_description_include_those_without_a_changelog(warehouse: Path) -> None:
    result = run(warehouse, "describe", "orders", "--stores")
    assert result.stderr == ""
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert {(row[1], row[2], row[-2]) for row in rows} == {
        ("cache", "1", "-"),
        ("counts", "1", CHANGELOGS[0]),
        ("rates", "-", "-"),
        ("sums", "2", CHANGELOGS[1]),
    }
    assert [row[4] for row in rows if row[1] in {"rates", "sums"}] == ["GLOBAL", "-"]
    stores = {one["store"]: one for one in as_json(warehouse, "describe", "orders", "--stores")}
    assert {one["known_from"] for one in stores.values()} == {"description"}
    assert (stores["rates"]["is_global"], stores["rates"]["copies"], stores["sums"]["copies"]) == (True, None, [])
    assert {one["role"] for one in stores["cache"]["copies"]} == {"active", "restoring", "standby"}


def test_without_a_description_stores_come_from_the_names_of_changelogs_and_that_is_said(warehouse: Path) -> None:
    result = run(warehouse, "describe", "derived", "--stores")
    assert result.stderr.startswith("derived: without a description of the topology, stores are derived from")
    assert {line.split()[1] for line in result.stdout.splitlines()[1:]} == {"counts", "sums"}
    assert run(warehouse, "describe", "plain", "--stores").stderr.startswith("plain: without a description")


def test_stores_of_the_classic_protocol_come_from_the_topics_of_the_cluster(warehouse: Path) -> None:
    (old,), (older,) = (as_json(warehouse, "describe", name, "--stores") for name in ("old", "older"))
    assert [(one["store"], one["partitions"], one["known_from"]) for one in (old, older)] == [
        ("counts", 2, "changelog")
    ] * 2
    assert (old["subtopology_id"], old["copies"], older["subtopology_id"], older["copies"]) == ("0", [], None, None)
    lines = run(warehouse, "describe", "older", "--stores").stderr.splitlines()
    assert lines[1] == "older: the log does not say which subtopology has which store."


def test_a_store_that_does_not_exist_is_one_line_and_all_groups_are_searched_for_one(warehouse: Path) -> None:
    result = run(warehouse, "describe", "orders", "--stores", "nothing")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: No store 'nothing' in orders: cache, counts, rates, sums\n"
    found = as_json(warehouse, "describe", "--all-groups", "--stores", "sums")
    assert [one["group_id"] for one in found] == ["derived", "orders"]
    lines = run(warehouse, "describe", "--all-groups", "--stores").stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["4 groups", "older"]
    assert run(warehouse, "describe", "orders", "--stores", "--members").exit_code == 2
    taken = run(warehouse, "describe", "--stores", "orders")
    assert (taken.exit_code, "'orders' was read as the name of a store" in taken.stderr) == (2, True)


def test_the_page_finds_groups_by_the_name_of_a_store(warehouse: Path) -> None:
    reader = WarehouseReader(warehouse)
    assert search_groups(reader, "default", "RATES") == {"orders": "store rates"}
    assert search_groups(reader, "default", "sums") == {
        "derived": "changelog derived-sums-changelog",
        "orders": "store sums",
    }

"""The page of an application with the classic protocol: what its last rebalance proves, and what is not known."""

import html
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from streaming_app.groups.group import LogRecord
from streaming_app.groups.row import to_row
from streaming_app.groups.task_copies import copies_of_row
from streaming_app.tables.lag_tables import LagTables
from streaming_app.web.access import Access
from streaming_app.web.page import Page
from streaming_app.web.page_snapshot import SnapshotSource
from tests.groups.classic_records import AT_ONCE, P2, assignment, generation, subscription, thread
from tests.groups.records import GROUP, fold
from tests.support.lag_harness import row
from tests.support.sample_groups import NOW, beat, clock
from tests.support.waiting import wait_until
from tests.support.warehouses import append, make_warehouse

SOURCES = {0: ["words"], 1: ["g-counts-repartition"]}
M1 = thread("m1", subscription(sums={(1, 0): -2}, tags={"zone": "a"}), assignment([(0, 0), (1, 0)], sources=SOURCES))
M2 = thread("m2", subscription(P2, {(1, 0): 5}), assignment([(0, 1)], [(1, 0)], sources=SOURCES), client_host="/h2")


def page_of(path: Path, *generations: dict[str, Any]) -> TestClient:
    """Return a client of the page on a warehouse with one classic group, which was folded from these generations."""
    values = [LogRecord(n, NOW, 2, GROUP, value) for n, value in enumerate(generations)]
    found = to_row("default", fold(values).group)
    make_warehouse(path)
    append(path, "groups", found)
    append(path, "task_copies", *(copy._asdict() for copy in copies_of_row(found)))
    of_record = {"record_type": 2, "member_id": "", "protocol_type": "consumer", "protocol": "stream", "epoch": 1}
    counted = {"member_count": len(found["members"]), "deleted": False, "last_offset": 0, "recorded_at": NOW}
    append(path, "group_records", {"group_id": "g", **of_record, **counted})
    task = {"subtopology_id": "0", "task_id": "0_0", "member_id": "m1", "client_host": "10.0.0.1"}
    LagTables(path, "default").replace_lag([row(group_id="g", topic="words", lag=1_234, **task)])
    beat(path, NOW)
    client = TestClient(Page(SnapshotSource(path, "default", clock), Access(), clock).app, base_url="http://localhost")
    assert wait_until(lambda: "classic" in client.get("/").text)
    return client


def text_of(client: TestClient) -> str:
    response = client.get("/group?id=g")
    assert response.status_code == 200
    return html.unescape(response.text)


def test_members_tasks_copies_and_topics_of_a_classic_application_are_shown_as_of_its_last_rebalance(
    tmp_path: Path,
) -> None:
    client = page_of(tmp_path, generation(1, M1, M2))
    text = text_of(client)
    for expected in (
        "as of the last rebalance, <time",
        "Generation",
        "Task matrix",
        "0_0: active, lag 1,234",
        "1_0: standby",
        "g-m1",
        "zone",
        "g-counts-repartition",
        "has state",
        "not known</span>",
        "It has no descriptions",
    ):
        assert expected in text, expected
    for lacking in ("Topology epoch", "Assignment epoch", "unowned", "A classic group"):
        assert lacking not in text, lacking
    graph = client.get("/graph?id=g").json()
    assert "changelog topics, patterns, processors and stores are not known" in str(graph)
    assert {"words", "g-counts-repartition"} <= {node["name"] for node in graph["nodes"]}


def test_tasks_that_change_hands_are_not_said_to_be_unowned(tmp_path: Path) -> None:
    gives = thread("m1", subscription(sums={(0, 1): -2}), assignment([(0, 0)], sources=SOURCES, next_rebalance=AT_ONCE))
    gets = thread("m2", subscription(P2), assignment([], [(0, 1)], sources=SOURCES), client_host="/h2")
    client = page_of(tmp_path, generation(2, gives, gets))
    text = text_of(client)
    assert "Tasks change hands: until the rebalance that follows, no member has them." in text
    assert "0_1: will take over as active" in text
    assert "unowned" not in text
    assert "without an active member" not in str(client.get("/graph?id=g").json())

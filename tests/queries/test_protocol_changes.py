"""A migration from one protocol to the other and back, told from the events of its records."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from streaming_app.groups.row import to_row
from streaming_app.queries.protocol_changes import read_changes
from streaming_app.tables.reader import WarehouseReader
from streaming_app.web.access import Access
from streaming_app.web.page import Page
from streaming_app.web.page_snapshot import SnapshotSource
from tests.cli.commands import output
from tests.groups.classic_records import assignment, generation, subscription, thread
from tests.groups.records import FIRST_JOIN, GROUP, M1, at, fold, log, metadata
from tests.support.sample_groups import clock
from tests.support.warehouses import append, make_warehouse

Steps = dict[str, tuple[datetime | None, str]]
SAME = [(0, 0), (0, 1)]


def classic(second: int, number: int, *tasks: tuple[int, int]) -> tuple[Any, ...]:
    """A generation with a member that has these tasks; without members if there are none."""
    members = [thread(f"c{number}", subscription(), assignment(tasks))] if tasks else []
    return at(second), 2, GROUP, generation(number, *members, entered=at(second))


THERE = [
    classic(-60, 1, *SAME),
    classic(-10, 2),
    (at(0), 2, {}, None),
    *FIRST_JOIN,
]
BACK = [
    *((at(30), kind, M1, None) for kind in (22, 21, 19)),
    (at(30), 17, GROUP, metadata(3)),
    *((at(60), kind, GROUP, None) for kind in (20, 17, 23)),
    (at(60), 2, GROUP, {}),
    classic(63, 1, *SAME[:1]),
]


def write(path: Path, *records: Any) -> Path:
    """Make a warehouse with the group of these records, and its events."""
    made, found = make_warehouse(path), fold(log(*records))
    append(made, "groups", to_row("default", found.group))
    append(made, "group_events", *(one._asdict() | {"group_id": "g", "void": False} for one in found.events))
    return made


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return write(tmp_path, *THERE, *BACK)


def steps(warehouse: Path, protocol: str) -> Steps:
    found = read_changes(WarehouseReader(warehouse), "default", "g")
    return {one["step"]: (one["at"], one["what"]) for one in found if one["protocol"] == protocol}


def commit(second: int, partition: int, offset: int) -> dict[str, Any]:
    of = {"group_id": "g", "topic": "a", "partition": partition, "committed_offset": offset}
    return {**of, "committed_at": at(second), "last_offset": second + 100}


def sample(second: int, partition: int, offset: int) -> dict[str, Any]:
    of = {"group_id": "g", "topic": "a", "partition": partition, "committed_offset": offset}
    known = {"log_start_offset": 0, "log_end_offset": offset, "lag": 0, "offset_status": "OK"}
    return {**of, **known, "observed_at": at(second)}


STEPS = ("stopped", "Empty", "converted", "joined", "tasks", "offsets")


@pytest.mark.parametrize(
    ("protocol", "seconds", "tasks"),
    [
        ("classic -> streams", (-10, -10, 0, 0, 4), "the same as before: 2 active tasks"),
        ("streams -> classic", (30, 30, 60, 63, 63), "nobody has 0_1"),
    ],
)
def test_each_step_is_told_with_its_time(warehouse: Path, protocol: str, seconds: tuple[int, ...], tasks: str) -> None:
    found = steps(warehouse, protocol)
    assert {name: when for name, (when, _) in found.items()} == dict(zip(STEPS, (*map(at, seconds), None), strict=True))
    assert (found["tasks"][1], found["offsets"][1]) == (tasks, "not known")
    assert found["stopped"][1].startswith("1 member left or timed out")
    assert ("members with the classic protocol" in found["stopped"][1]) is protocol.startswith("classic")


NONE_LOWER = "none of 1 that are known from before lower than then"


@pytest.mark.parametrize(
    ("commits", "said"),
    [
        ([commit(-20, 0, 5), commit(-20, 1, 6)], (None, "0 of 2 partitions committed since")),
        ([commit(9, 0, 5), commit(-20, 1, 6)], (9, f"1 of 2 partitions committed since, {NONE_LOWER}")),
        ([commit(9, 0, 5), commit(9, 2, 1)], (9, f"2 of 2 partitions committed since, {NONE_LOWER}")),
        ([commit(9, 0, 4), commit(8, 1, 6)], (9, "lower than before: a-0 5 -> 4")),
    ],
)
def test_offsets_go_on_stand_or_are_lower(warehouse: Path, commits: list[Any], said: tuple[int | None, str]) -> None:
    append(warehouse, "offset_commits", *commits)
    append(warehouse, "lag_history", sample(-15, 0, 5), sample(-15, 1, 6), sample(20, 0, 99))
    second, text = said
    assert steps(warehouse, "classic -> streams")["offsets"] == (None if second is None else at(second), text)


@pytest.mark.slow
def test_the_page_of_the_group_shows_the_steps(tmp_path: Path) -> None:
    source = SnapshotSource(write(tmp_path, *THERE), "default", clock)
    with TestClient(Page(source, Access(), clock).app, base_url="http://localhost") as client:
        text = client.get("/group?id=g").text
    assert "<h3>Change of the protocol</h3>" in text
    assert "the same as before: 2 active tasks" in text


def test_history_prints_the_events_and_then_the_steps(warehouse: Path) -> None:
    events, changes = output(warehouse, "history", "g").split("\n\n")
    assert [line.split()[1] for line in events.splitlines() if "protocol_changed" in line.split()[1]]
    assert "deleted" not in events
    lines = changes.splitlines()
    assert lines[0].split() == ["PROTOCOL", "STEP", "AT", "WHAT"]
    assert [line.split()[3] for line in lines[1:]] == [*STEPS, *STEPS]
    assert "\n\n" not in output(warehouse, "history", "g", "--member", "m1")

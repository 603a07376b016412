"""`describe --copies`: where the copies of tasks are, and which processes may be stopped."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from streaming_app.groups.task_copies import TaskCopy
from streaming_app.queries.copies import check_stops
from streaming_app.tables.task_copies_table import TaskCopiesTable
from tests.cli.commands import as_json, run, words
from tests.groups.test_task_copies import copy
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row, member_row, subtopology_row, task_row
from tests.support.warehouses import append, make_warehouse

COPIES = ("describe", "--copies")
TITLES = "GROUP TASK ROLE STATEFUL HOST PROCESS MEMBER LAG END DONE RATE REPORTED READY"
PROCESS_TITLES = "PROCESS HOST TAGS COPIES RESTORING LAG RATE READY MAY-STOP WHY"
NOW = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)


def row(group_id: str, state: str = "Stable", **tasks: list[tuple[str, str]]) -> dict[str, Any]:
    """The row of a group with a member for each name in `tasks`."""
    return group_row(
        group_id,
        state,
        members=[
            member_row(f"m-{name}", process_id=f"p-{name}", client_host=f"/{name}", client_tags={"zone": name})
            for name in tasks
        ],
        assignments=[
            task_row(f"m-{name}", task_id, role, current=True) for name, own in tasks.items() for role, task_id in own
        ],
        subtopologies=[subtopology_row(changelogs=["c"])],
    )


def offsets(group_id: str, member: str, partition: int, lag: int, **values: Any) -> TaskCopy:
    copy = TaskCopy(group_id, f"m-{member}", f"p-{member}", member, "standby", "0", partition, stateful=True, lag=lag)
    return copy._replace(task_offset=100, task_end_offset=100 + lag, reported_at=NOW, **values)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    a, b = [("active", "0_0"), ("standby", "0_1")], [("active", "0_1"), ("standby", "0_0")]
    rows = [
        row("orders", a=a, b=b),
        row("moving", "Reconciling", a=a, b=b),
        row("unknown", a=a, b=b),
        row("idle", "Empty"),
        row("alone", a=[("active", "0_0")]),
        row("restored", a=[("active", "0_0"), ("active", "0_1")], b=[("active", "0_2")]),
    ]
    append(path, "groups", *rows)
    own = [offsets(name, "a", 1, 9_000) for name in ("orders", "moving")]
    own += [offsets(name, "b", 0, 20_000) for name in ("orders", "moving")]
    restored = {"role": "restoring", "ready_at": NOW + timedelta(seconds=30), "rate": 10.0}
    own += [
        offsets("restored", "a", 0, 675, **restored)._replace(task_offset=225, task_end_offset=900),
        offsets("restored", "a", 1, 100, **restored)._replace(
            task_offset=900, task_end_offset=1_000, rate=2.5, ready_at=NOW + timedelta(minutes=1)
        ),
        offsets("restored", "b", 2, 1, role="restoring")._replace(task_offset=499, task_end_offset=500),
    ]
    TaskCopiesTable(path, "default").replace(own)
    write_heartbeat(path)
    return path


def test_copies_are_listed_by_task_and_processes_with_the_reason_why_they_may_not_stop(warehouse: Path) -> None:
    result = run(warehouse, *COPIES, "--group", "orders")
    assert (result.exit_code, result.stderr) == (0, "")
    header, *lines = result.stdout.splitlines()
    assert " ".join(header.split()) == TITLES
    assert [line.split()[1:] for line in lines[:2]] == [
        ["0_0", "ACTIVE", "yes", "a", "p-a", "m-a", "-", "-", "-", "-", "-", "-"],
        ["0_0", "STANDBY", "yes", "b", "p-b", "m-b", "20000", "20100", "0%", "-", "2026-11-22T09:00:00.000Z", "-"],
    ]
    assert (lines[4], " ".join(lines[5].split())) == ("", PROCESS_TITLES)
    assert lines[6].split()[:9] == ["p-a", "a", "zone=a", "2", "0", "-", "-", "-", "no"]
    assert lines[6].endswith("0_0: the best other copy is 20,000 behind, more than 10,000")
    assert lines[7].split() == ["p-b", "b", "zone=b", "2", "0", "-", "-", "-", "yes", "-"]


def test_a_restore_is_told_by_task_and_by_process(warehouse: Path) -> None:
    lines = words(warehouse, *COPIES, "--group", "restored")
    assert [line[-5:] for line in lines[1:4]] == [
        ["900", "25%", "10", "2026-11-22T09:00:00.000Z", "2026-11-22T09:00:30.000Z"],
        ["1000", "90%", "2", "2026-11-22T09:00:00.000Z", "2026-11-22T09:01:00.000Z"],
        ["500", "99%", "-", "2026-11-22T09:00:00.000Z", "-"],
    ]
    assert [line[:8] for line in lines[6:]] == [
        ["p-a", "a", "zone=a", "2", "2", "775", "12", "2026-11-22T09:01:00.000Z"],
        ["p-b", "b", "zone=b", "1", "1", "1", "-", "-"],
    ]
    (printed,) = as_json(warehouse, *COPIES, "--group", "restored")
    first = printed["processes"][0]
    assert (first["rate"], first["client_tags"], first["may_stop"]) == (12.5, {"zone": "a"}, False)


def test_a_rebalance_and_unknown_offsets_are_said(warehouse: Path) -> None:
    assert run(warehouse, *COPIES, "--group", "moving").stdout.count("not now") == 2
    assert "the group is Reconciling" in run(warehouse, *COPIES, "--group", "moving").stdout
    unknown = run(warehouse, *COPIES, "--group", "unknown")
    assert unknown.stderr.startswith("The lag of copies is not known: clients report it once a minute")
    assert unknown.stderr.count("\n") == 1
    assert "but not for running active tasks" in run(warehouse, *COPIES, "--group", "alone").stderr
    assert run(warehouse, *COPIES, "--group", "idle").stdout == "idle is Empty: no member has a task.\n"


def test_a_dormant_copy_takes_over_if_it_is_near_enough_and_needs_nobody_itself() -> None:
    restoring = copy("a", "restoring", lag=60)
    for lag, may_stop in ((50, True), (51, False)):
        checks = check_stops([restoring, copy("b", "dormant", lag=lag)], 50)
        assert [not one["obstacles"] for one in checks] == [may_stop, True]
    assert not any(one["obstacles"] for one in check_stops([restoring, copy("b", "standby", lag=0)], 50))
    assert not check_stops([copy("b", "dormant", lag=0)], 50)[0]["obstacles"]


@pytest.mark.parametrize(
    ("copies", "obstacles"),
    [
        ([copy("a", "active")], {"a": ["0_0 has no other copy"]}),
        ([copy("a", "active"), copy("a", "standby", lag=0)], {"a": ["0_0 has no other copy"]}),
        ([copy("a", "active"), copy("b", "standby", lag=10)], {"a": [], "b": []}),
        (
            [copy("a", "active"), copy("b", "standby", lag=11)],
            {"a": ["0_0: the best other copy is 11 behind, more than 10"], "b": []},
        ),
        (
            [copy("a", "active"), copy("b", "standby"), copy("c", "warmup")],
            {"a": ["0_0: the lag of the other copies is not known"], "b": [], "c": []},
        ),
        ([copy("a", "active"), copy("b", "standby"), copy("c", "warmup", lag=1)], {"a": [], "b": [], "c": []}),
        ([copy("a", "active", stateful=False)], {"a": []}),
        ([copy("a", "standby", lag=0)], {"a": ["0_0 has no other copy"]}),
        ([copy("a", "active", 0), copy("a", "active", 1)], {"a": [f"0_{n} has no other copy" for n in (0, 1)]}),
    ],
    ids=["alone", "same process", "near", "far", "unknown", "one is near", "stateless", "no active", "each task"],
)
def test_a_process_may_stop_if_every_stateful_task_goes_on_elsewhere_without_a_restore(
    copies: list[TaskCopy], obstacles: dict[str, list[str]]
) -> None:
    found = {check["process_id"]: check["obstacles"] for check in check_stops(copies, 10)}
    assert found == obstacles


def test_a_copy_of_a_member_that_left_temporarily_does_not_count() -> None:
    copies = [copy("a", "active"), copy("b", "standby", lag=0)]
    first, second = check_stops(copies, 10, away={"m-b"})
    assert (bool(first["obstacles"]), second["obstacles"]) == (True, [])

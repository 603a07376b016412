"""`describe --copies`: where the copies of tasks are, and which processes may be stopped."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming_app.cli.main import main
from streaming_app.groups.task_copies import TaskCopy
from streaming_app.tables.task_copies_table import TaskCopiesTable
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row, member_row, subtopology_row, task_row
from tests.support.warehouses import append, make_warehouse

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


def run(warehouse: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["describe", "--copies", *arguments, "--warehouse", str(warehouse)])


def test_copies_are_listed_by_task_and_processes_with_the_reason_why_they_may_not_stop(warehouse: Path) -> None:
    result = run(warehouse, "--group", "orders")
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
    lines = [line.split() for line in run(warehouse, "--group", "restored").stdout.splitlines()]
    assert [line[-5:] for line in lines[1:4]] == [
        ["900", "25%", "10", "2026-11-22T09:00:00.000Z", "2026-11-22T09:00:30.000Z"],
        ["1000", "90%", "2", "2026-11-22T09:00:00.000Z", "2026-11-22T09:01:00.000Z"],
        ["500", "99%", "-", "2026-11-22T09:00:00.000Z", "-"],
    ]
    assert [line[:8] for line in lines[6:]] == [
        ["p-a", "a", "zone=a", "2", "2", "775", "12", "2026-11-22T09:01:00.000Z"],
        ["p-b", "b", "zone=b", "1", "1", "1", "-", "-"],
    ]
    (printed,) = json.loads(run(warehouse, "--group", "restored", "--json").stdout)
    first = printed["processes"][0]
    assert (first["restoring"], first["lag"], first["rate"], first["ready_at"], first["client_tags"]) == (
        *(2, 775, 12.5),
        *("2026-11-22T09:01:00.000Z", {"zone": "a"}),
    )


def test_json_says_which_processes_may_stop(warehouse: Path) -> None:
    def may_stop(group_id: str) -> dict[str, bool | None]:
        (printed,) = json.loads(run(warehouse, "--group", group_id, "--json").stdout)
        return {one["process_id"]: one["may_stop"] for one in printed["processes"]}

    assert may_stop("orders") == {"p-a": False, "p-b": True}
    assert may_stop("moving") == {"p-a": None, "p-b": None}
    assert may_stop("unknown") == {"p-a": False, "p-b": False}


def test_a_rebalance_and_unknown_offsets_are_said(warehouse: Path) -> None:
    assert run(warehouse, "--group", "moving").stdout.count("not now") == 2
    assert "the group is Reconciling" in run(warehouse, "--group", "moving").stdout
    unknown = run(warehouse, "--group", "unknown")
    assert unknown.stderr.startswith("The lag of copies is not known: clients report it once a minute")
    assert unknown.stderr.count("\n") == 1
    assert "but not for running active tasks" in run(warehouse, "--group", "alone").stderr
    assert run(warehouse, "--group", "idle").stdout == "idle is Empty: no member has a task.\n"


def test_copies_of_all_groups_are_in_one_table(warehouse: Path) -> None:
    lines = run(warehouse, "--all-groups").stdout.splitlines()
    assert lines[0] == "idle is Empty: no member has a task."
    assert [line.split()[0] for line in lines if " ACTIVE " in line] == ["alone", *["moving"] * 2] + ["orders"] * 2 + [
        "unknown"
    ] * 2

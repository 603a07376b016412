"""`history`: what happened to a group, who had a task, and how everything was at a time, from `group_events` alone."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming_app.cli.main import main
from tests.support.warehouses import append, make_warehouse

THREE = datetime(2026, 3, 14, 3, tzinfo=timezone.utc)

# minutes after 3:00, kind, member, old, new
STORY: tuple[tuple[int, str, str | None, str | None, str | None], ...] = (
    (0, "created", None, None, "streams"),
    (0, "member_joined", "m1", None, "app"),
    (0, "member_joined", "m2", None, "app"),
    (1, "assignment", "m1", None, "active 0_3,0_4; standby 1_0"),
    (1, "assignment", "m2", None, "active 1_0; standby 0_3"),
    (1, "state", None, "Reconciling", "Stable"),
    (10, "assignment", "m1", "active 0_3,0_4; standby 1_0", "active 0_4"),
    (11, "assignment", "m2", "active 1_0; standby 0_3", "active 0_3,1_0"),
    (20, "assignment", "m1", "active 0_4", None),
    (20, "member_left", "m1", "app", None),
    (20, "state", None, "Stable", "Reconciling"),
    (30, "deleted", None, "streams", None),
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("history"))
    rows = [
        {
            "cluster": "default",
            "group_id": "payments",
            "at": THREE + timedelta(minutes=minutes),
            "kind": kind,
            "member_id": member,
            "old": old,
            "new": new,
            "offset": number,
            "client_host": f"/10.0.0.{member[1]}" if member and kind.startswith("member") else None,
            "instance_id": f"pod-{member[1]}" if member and kind == "member_joined" else None,
        }
        for number, (minutes, kind, member, old, new) in enumerate(STORY)
    ]
    append(path, "group_events", *rows)
    return path


def history(warehouse: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["history", "--group", "payments", *arguments, "--warehouse", str(warehouse)])


def as_json(warehouse: Path, *arguments: str) -> Any:
    result = history(warehouse, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def at(minutes: int) -> str:
    return f"2026-03-14T03:{minutes:02}Z"


def test_everything_that_happened_is_printed_in_order(warehouse: Path) -> None:
    lines = history(warehouse).stdout.splitlines()
    assert lines[0].split() == ["AT", "KIND", "MEMBER", "HOST", "OLD", "NEW"]
    assert [line.split()[1] for line in lines[1:]] == [kind for _, kind, *_ in STORY]
    assert [event["kind"] for event in as_json(warehouse, "--limit", "2")] == ["state", "deleted"]


@pytest.mark.parametrize("member", ["m1", "pod-1"])
def test_a_member_is_named_by_its_id_or_its_instance_id(warehouse: Path, member: str) -> None:
    events = as_json(warehouse, "--member", member)
    assert {event["member_id"] for event in events} == {"m1"}
    assert [event["kind"] for event in events] == ["member_joined", *["assignment"] * 3, "member_left"]


def test_who_had_a_task_until_it_moved_or_its_member_left(warehouse: Path) -> None:
    found = as_json(warehouse, "--task", "0_3")
    assert [(spell["member_id"], spell["role"], spell["since"][14:16], spell["until"][14:16]) for spell in found] == [
        ("m1", "active", "01", "10"),
        ("m2", "standby", "01", "11"),
        ("m2", "active", "11", "30"),
    ]
    assert found[0]["client_host"] == "/10.0.0.1"
    (spell,) = as_json(warehouse, "--task", "0_4")
    assert spell["until"] == "2026-03-14T03:20:00.000Z"


def test_how_a_group_was_at_a_time(warehouse: Path) -> None:
    found = as_json(warehouse, "--at", at(15))
    assert (found["state"], found["deleted_at"]) == ("Stable", None)
    assert [(one["member_id"], one["tasks"], one["client_host"]) for one in found["members"]] == [
        ("m1", "active 0_4", "/10.0.0.1"),
        ("m2", "active 0_3,1_0", "/10.0.0.2"),
    ]
    lines = history(warehouse, "--at", at(15)).stdout.splitlines()
    assert lines[0].split()[0] == "STATE"
    assert lines[3].startswith("MEMBER")


def test_after_members_left_and_the_group_was_deleted_they_are_gone(warehouse: Path) -> None:
    assert [one["member_id"] for one in as_json(warehouse, "--at", at(25))["members"]] == ["m2"]
    deleted = as_json(warehouse, "--at", at(40))
    assert (deleted["members"], deleted["deleted_at"]) == ([], "2026-03-14T03:30:00.000Z")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--at", "2026-03-14T02:59Z"], 1, "Nothing is known about the group at 2026-03-14T02:59:00Z: see --at"),
        (["--member", "m9"], 1, "Group 'payments' had no member 'm9'"),
        (["--task", "0_4", "--at", at(21)], 1, "No member of group 'payments' had the task 0_4 then"),
        (["--task", "0-3"], 2, "--task"),
        (["--at", "yesterday"], 2, "--at"),
    ],
)
def test_what_was_not_is_one_line(warehouse: Path, arguments: list[str], code: int, message: str) -> None:
    result = history(warehouse, *arguments)
    assert result.exit_code == code
    assert message in result.output

"""`history`: what happened to a group, who had a task, and how everything was at a time, from `group_events` alone."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from streaming_app.groups.row import to_row
from streaming_app.groups.topology import topology_hash
from tests.cli.commands import as_json, run
from tests.groups.classic_records import assignment, generation, records, thread
from tests.groups.records import fold
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import subtopology_row
from tests.support.warehouses import append, make_warehouse

PAYMENTS = ("history", "--group", "payments")
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


def at(minutes: int) -> str:
    return f"2026-03-14T03:{minutes:02}Z"


def test_everything_that_happened_is_printed_in_order(warehouse: Path) -> None:
    lines = run(warehouse, *PAYMENTS).stdout.splitlines()
    assert lines[0].split() == ["AT", "KIND", "MEMBER", "HOST", "OLD", "NEW"]
    assert [line.split()[1] for line in lines[1:]] == [kind for _, kind, *_ in STORY]
    assert [event["kind"] for event in as_json(warehouse, *PAYMENTS, "--limit", "2")] == ["state", "deleted"]


@pytest.mark.parametrize("member", ["m1", "pod-1"])
def test_a_member_is_named_by_its_id_or_its_instance_id(warehouse: Path, member: str) -> None:
    events = as_json(warehouse, *PAYMENTS, "--member", member)
    assert {event["member_id"] for event in events} == {"m1"}
    assert [event["kind"] for event in events] == ["member_joined", *["assignment"] * 3, "member_left"]


def test_who_had_a_task_until_it_moved_or_its_member_left(warehouse: Path) -> None:
    found = as_json(warehouse, *PAYMENTS, "--task", "0_3")
    assert [(spell["member_id"], spell["role"], spell["since"][14:16], spell["until"][14:16]) for spell in found] == [
        ("m1", "active", "01", "10"),
        ("m2", "standby", "01", "11"),
        ("m2", "active", "11", "30"),
    ]
    assert found[0]["client_host"] == "/10.0.0.1"
    (spell,) = as_json(warehouse, *PAYMENTS, "--task", "0_4")
    assert spell["until"] == "2026-03-14T03:20:00.000Z"


def test_how_a_group_was_at_a_time(warehouse: Path) -> None:
    found = as_json(warehouse, *PAYMENTS, "--at", at(15))
    assert (found["state"], found["deleted_at"]) == ("Stable", None)
    assert [(one["member_id"], one["tasks"], one["client_host"]) for one in found["members"]] == [
        ("m1", "active 0_4", "/10.0.0.1"),
        ("m2", "active 0_3,1_0", "/10.0.0.2"),
    ]
    lines = run(warehouse, *PAYMENTS, "--at", at(15)).stdout.splitlines()
    assert lines[0].split()[0] == "STATE"
    assert lines[3].startswith("MEMBER")


def test_a_group_that_is_ready_again_has_no_reason_why_it_is_not(tmp_path: Path) -> None:
    events = ((0, "not_ready_reason", "MISSING"), (0, "state", "NotReady"), (5, "state", "Stable"))
    row = {"cluster": "default", "group_id": "payments"}
    rows = (
        {**row, "at": THREE + timedelta(minutes=minutes), "kind": kind, "new": new, "offset": number}
        for number, (minutes, kind, new) in enumerate(events)
    )
    append(make_warehouse(tmp_path), "group_events", *rows)
    assert as_json(tmp_path, *PAYMENTS, "--at", at(4))["not_ready_reason"] == "MISSING"
    assert as_json(tmp_path, *PAYMENTS, "--at", at(5))["not_ready_reason"] is None


def test_after_members_left_and_the_group_was_deleted_they_are_gone(warehouse: Path) -> None:
    assert [one["member_id"] for one in as_json(warehouse, *PAYMENTS, "--at", at(25))["members"]] == ["m2"]
    deleted = as_json(warehouse, *PAYMENTS, "--at", at(40))
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
    result = run(warehouse, *PAYMENTS, *arguments)
    assert result.exit_code == code
    assert message in result.output


def act(kind: str, minutes: int, number: int, old: int | None, new: int | None, cause: str) -> dict[str, Any]:
    """Return the event of partition `number` of a topic."""
    values = {"old": None if old is None else str(old), "new": None if new is None else str(new), "cause": cause}
    place = {"topic": "orders", "partition": number, "offset": 1_000 * minutes + number}
    return {"group_id": "payments", "at": THREE + timedelta(minutes=minutes), "kind": kind, **values, **place}


@pytest.fixture
def acted(tmp_path: Path) -> Path:
    """A warehouse with a reset of 1,000 partitions, and a deletion of the group when offsets waited."""
    path = make_warehouse(tmp_path)
    reset = [act("offsets_reset", 2, n, 7 + n, n, "while_empty") for n in range(1_000)]
    gone = [act("offsets_deleted", 5, n, n, None, "group_deleted,while_empty") for n in range(2)]
    known = {"group_id": "payments", "kind": "created", "new": "streams", "at": THREE, "offset": 0}
    deleted = {
        **known,
        "kind": "deleted",
        "old": "streams",
        "new": None,
        "at": THREE + timedelta(minutes=5),
        "offset": 5_009,
    }
    grown = {**act("topic_grown", 6, 0, 3, 6, ""), "cause": None, "partition": None, "offset": None}
    append(path, "group_events", known, *reset, *gone, deleted, grown, {**grown, "topic": "payments"})
    sample = {
        "group_id": "payments",
        "topic": "orders",
        "offset_status": "WAITS",
        "observed_at": THREE + timedelta(minutes=4),
    }
    append(path, "lag_history", *({**sample, "partition": n, "lag": lag} for n, lag in ((0, 10), (1, 5))))
    return path


def test_a_reset_of_a_thousand_partitions_is_one_line_and_a_deletion_says_what_waited(acted: Path) -> None:
    lines = [" ".join(line.split()[1:]) for line in run(acted, *PAYMENTS).stdout.splitlines()]
    before, after = (f"orders-0={n}, orders-1={n + 1}, orders-2={n + 2} and 997 more" for n in (7, 0))
    assert lines[2:] == [
        f"offsets_reset {before} {after} while_empty -",
        "offsets_deleted orders-0=0, orders-1=1 - group_deleted,while_empty -",
        "deleted streams - - 15",
        "topic_grown orders=3, payments=3 orders=6, payments=6 - -",
    ]
    assert len(as_json(acted, *PAYMENTS, "--limit", "5000")) == 1_006


def test_why_tells_of_the_last_act_on_the_offsets(acted: Path) -> None:
    now = datetime.now(timezone.utc)
    recent = {**act("offsets_reset", 9, 0, None, 0, "while_empty"), "at": now}
    append(acted, "group_events", recent, {**recent, "partition": 1, "offset": 9_001})
    verdict = {"group_id": "payments", "verdict": "Off", "since": now, "at": now, "why": "It has no members."}
    append(acted, "group_health_history", verdict)
    (line,) = [one for one in run(acted, "why", "payments").stdout.splitlines() if "Offsets reset at" in one]
    assert line.endswith("(while empty): orders-0 from an offset that is not known to 0 and 1 more partition.")


FIRST_AT = datetime(2026, 11, 1, 8, tzinfo=timezone.utc)


def subtopology(*source_topics: str, changelogs: Mapping[str, int] | None = None) -> dict[str, Any]:
    return subtopology_row(source_topics=list(source_topics), changelogs=changelogs or {})


FIRST = [subtopology("orders", changelogs={"app-seen-changelog": 6})]
SECOND = [subtopology("orders", "payments", changelogs={"app-seen-changelog": 12})]


class Tables:
    """A warehouse in which the test writes a group, and its topologies with the days since `FIRST_AT`."""

    def __init__(self, path: Path) -> None:
        self.path = make_warehouse(path)
        write_heartbeat(self.path)

    def write(self, group_id: str, *topologies: tuple[int, list[Any]]) -> None:
        append(self.path, "groups", {"group_id": group_id, "state": "Empty"})
        for offset, (days, subtopologies) in enumerate(topologies):
            row = {"topology_hash": topology_hash(subtopologies), "topology_epoch": 0, "subtopologies": subtopologies}
            first_seen_at = FIRST_AT + timedelta(days=days)
            append(
                self.path, "topologies", {**row, "group_id": group_id, "first_seen_at": first_seen_at, "offset": offset}
            )

    def diff(self, *arguments: str) -> Result:
        return run(self.path, "history", "--topology", *arguments)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = Tables(tmp_path_factory.mktemp("warehouse"))
    made.write("payments", (0, FIRST), (9, SECOND))
    made.write("back", (0, FIRST), (9, SECOND), (10, FIRST), (11, FIRST))
    made.write("new", (3, FIRST))
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
        (["without-topology"], "Group 'without-topology' has no topology in the log yet"),
    ],
)
def test_no_group_and_no_earlier_topology_are_one_line_each(tables: Tables, arguments: list[str], line: str) -> None:
    result = tables.diff("--group", *arguments)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert result.output.startswith(f"Error: {line}")


def description(group_id: str, days: int, *nodes: tuple[str, str]) -> dict[str, Any]:
    """Return a row of a description that was stored so many days after `FIRST_AT`."""
    return {
        "group_id": group_id,
        "topology_epoch": 0,
        "content_hash": str(nodes),
        "stored_at": FIRST_AT + timedelta(days=days),
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


def test_of_an_application_with_the_classic_protocol_the_topics_that_its_tasks_read_are_compared(
    tmp_path: Path,
) -> None:
    tables = Tables(tmp_path)
    sources = {0: ["orders"]}, {0: ["orders", "payments"]}
    generations = (thread("m1", assigned=assignment([(0, 0)], sources=one)) for one in sources)
    result = fold(records(*(generation(n, one) for n, one in enumerate(generations, start=1)), first=1))
    append(tables.path, "topologies", *({**one, "group_id": "g"} for one in result.topologies))
    append(tables.path, "groups", to_row("default", result.group))
    before, after, *rows, note = tables.diff("--group", "g").output.splitlines()
    assert (before.split("since")[1], after.split("since")[1]) == (" 2026-01-01 00:00:01Z", " 2026-01-01 00:00:02Z")
    assert rows[1].split()[:5] == ["added", "source", "topic", "0", "payments"]
    assert note == "Only topics that tasks read are compared: with the classic protocol the log has no others."
    streams = subtopology("orders", "payments", changelogs={"g-seen-changelog": 6})
    migrated = {"topology_hash": "s", "topology_epoch": 0, "first_seen_at": FIRST_AT, "subtopologies": [streams]}
    append(tables.path, "topologies", {"group_id": "g", "offset": 9, **migrated})
    same = tables.diff("--group", "g", "--from", "2026-01-01T00:00:02Z").output.splitlines()
    assert same[-2:] == ["no difference: topology s, epoch 0, since 2026-11-01 08:00:00Z", note]

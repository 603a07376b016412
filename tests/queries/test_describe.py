"""What `describe` prints of members and of the reason why a group is not Stable."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from streaming_app.groups.row import to_row
from tests.cli.commands import as_json, run
from tests.groups.classic_records import P1, P2, assignment, generation, records, subscription, thread
from tests.groups.records import fold
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row, member_row, subtopology_row, task_row
from tests.support.warehouses import append, make_warehouse

AT = datetime(2026, 11, 22, 7, 30, tzinfo=timezone.utc)


def member(member_id: str, **columns: Any) -> dict[str, Any]:
    return member_row(member_id, updated_at=AT, **columns)


class Warehouse:
    def __init__(self, path: Path) -> None:
        self.path = make_warehouse(path)

    def write(self, group_id: str, state: str, members: list[dict[str, Any]], tasks: list[dict[str, Any]]) -> None:
        epochs = {"group_epoch": 7, "assignment_epoch": 7}
        append(self.path, "groups", group_row(group_id, state, members=members, assignments=tasks, **epochs))

    def describe(self, *arguments: str) -> str:
        result = run(self.path, "describe", *arguments)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = Warehouse(tmp_path_factory.mktemp("warehouse"))
    made.write(
        "orders",
        "Reconciling",
        [
            member("slow", member_state="UNREVOKED_TASKS", member_epoch=6, client_host="/10.0.0.3"),
            member("away", member_epoch=-2, instance_id="i-2"),
            member("next", member_state="UNRELEASED_TASKS"),
            member("well"),
        ],
        [
            task_row("slow", "0_3", pending_revocation=True),
            task_row("next", "0_3", target=True),
            task_row("away", "0_1", current=True),
        ],
    )
    made.write("calm", "Stable", [member("m")], [])
    return made


def test_a_verbose_state_names_the_members_that_a_rebalance_waits_for(warehouse: Warehouse) -> None:
    _, _, blank, header, slow, away = warehouse.describe("--group", "orders", "--state", "--verbose").splitlines()
    assert blank == ""
    assert header.split() == ["GROUP", "WAITS-FOR", "MEMBER", "PROCESS", "HOST", "INSTANCE-ID", "WHY", "SINCE"]
    assert slow.split()[:6] == ["orders", "client-slow", "slow", "process-slow", "10.0.0.3", "-"]
    assert "has not revoked task 0_3" in slow
    assert slow.endswith("2026-11-22T07:30:00.000Z")
    assert away.split()[:6] == ["orders", "client-away", "away", "process-away", "10.0.0.1", "i-2"]
    assert "left temporarily and still owns task 0_1" in away
    groups = {one["group_id"]: one for one in json.loads(warehouse.describe("--all-groups", "--json"))}
    assert [one["member_id"] for one in groups["orders"]["waits_for"]] == ["slow", "away"]
    assert groups["calm"]["waits_for"] == []
    assert len(warehouse.describe("--group", "calm", "--state", "--verbose").splitlines()) == 2


def coordinators(*brokers: str) -> list[dict[str, Any]]:
    """The coordinators by partition of the offsets topic: of four "orders" is in the last one, "other" in the first."""
    facts = (
        (f"__consumer_offsets-{n}", broker_fact("", "coordinator", "coordinator", one)) for n, one in enumerate(brokers)
    )
    return [{**fact, "subject": subject, "group_id": None} for subject, fact in facts]


def broker_fact(group_id: str, kind: str, name: str, value: str, source: str | None = None) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "kind": kind,
        "subject": group_id,
        "name": name,
        "value": value,
        "source": source,
        "observed_at": AT,
    }


def test_internal_topics_that_differ_follow_the_topology(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    parts = [subtopology_row(source_topics=["orders"], changelogs={"orders-totals-changelog": 0})]
    append(warehouse.path, "groups", group_row("orders", "Stable", subtopologies=parts))
    differs = broker_fact("orders", "internal_topic", "cleanup.policy", "delete, asked for compact")
    append(warehouse.path, "broker_facts", {**differs, "subject": "orders-totals-changelog"})
    lines = [line.split() for line in warehouse.describe("--group", "orders", "--topology").splitlines()]
    assert ["orders", "orders-totals-changelog", "cleanup.policy", "delete,", "asked", "for", "compact"] in lines


def test_of_a_group_without_members_it_is_said_when_the_brokers_remove_what_is_left(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.write("nightly", "Empty", [], [])
    warehouse.write("tried", "Empty", [], [])
    for number, partition in enumerate((0, 1)):
        offset = {"group_id": "nightly", "topic": "orders", "partition": partition, "committed_offset": 7}
        times = dict.fromkeys(("committed_at", "recorded_at"), AT + timedelta(days=number))
        append(warehouse.path, "offset_commits", {**offset, **times, "source_partition": 0, "last_offset": number})
    days = broker_fact("1", "broker_config", "offsets.retention.minutes", "2880", "broker")
    sweep = broker_fact("1", "broker_config", "offsets.retention.check.interval.ms", "90000", "broker")
    append(warehouse.path, "broker_facts", {**days, "group_id": None}, {**sweep, "group_id": None})
    assert warehouse.describe("nightly", "--state", "--verbose").splitlines()[-1] == (
        "nightly has no members: the brokers delete its offsets from 2026-11-24 07:30:00Z on, and the group, "
        "with a stored topology description, from 2026-11-25 07:30:00Z on."
    )
    last = warehouse.describe("tried", "--state", "--verbose").splitlines()[-1]
    assert last == "tried has no members and no offsets: the brokers delete it at their next sweep, every 1m30s."


def test_the_coordinator_and_the_configs_in_force_are_what_the_brokers_said_last(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    warehouse.write("orders", "Stable", [member("m")], [])
    warehouse.write("other", "Stable", [member("m")], [])
    standby = broker_fact("orders", "group_config", "streams.num.standby.replicas", "1", "group")
    for fact in (
        *coordinators("none", *["b1.example:9092 (1)"] * 2, "b2.example:9092 (2)"),
        {**standby, "value_before": "0", "changed_at": AT - timedelta(days=1)},
        broker_fact("orders", "group_config", "streams.session.timeout.ms", "45000", "default"),
        broker_fact("other", "group_config", "streams.assignor.name", "balanced", "default"),
    ):
        append(warehouse.path, "broker_facts", fact)
    header, orders, other = warehouse.describe("--all-groups", "--state").splitlines()
    assert header.startswith("GROUP  COORDINATOR (ID)    ASSIGNOR STATE ")
    assert orders.startswith("orders b2.example:9092 (2) -        Stable")
    assert other.split()[:4] == ["other", "none", "balanced", "Stable"]  # an assignor's name is only shown
    configs = [line.split() for line in warehouse.describe("orders", "--state", "--verbose").splitlines()[-3:]]
    assert configs == [
        ["GROUP", "CONFIG", "VALUE", "SOURCE", "BEFORE", "CHANGED"],
        ["orders", "streams.num.standby.replicas", "1", "group", "0", "2026-11-21T07:30:00.000Z"],
        ["orders", "streams.session.timeout.ms", "45000", "default", "-", "-"],
    ]
    described, _ = json.loads(warehouse.describe("--all-groups", "--json"))
    assert described["coordinator"] == "b2.example:9092 (2)"

    append(warehouse.path, "broker_facts", broker_fact("2", "broker_config", "group.streams.max.standby.replicas", "0"))
    least = broker_fact("2", "broker_config", "group.streams.min.session.timeout.ms", "60000")
    append(warehouse.path, "broker_facts", least)
    clamped = [line.split()[:4] for line in warehouse.describe("orders", "--state", "--verbose").splitlines()[-3:]]
    assert clamped == [
        ["GROUP", "CONFIG", "VALUE", "IN-FORCE"],
        ["orders", "streams.num.standby.replicas", "1", "0"],
        ["orders", "streams.session.timeout.ms", "45000", "60000"],
    ]


FETCHED_AT = datetime(2026, 11, 22, 9, tzinfo=timezone.utc)
TEXT = "Topologies:\n   Sub-topology: 0\n    Source: s (topics: [orders])\n      --> none\n\n"


def description(group_id: str, days: int = 0, **columns: Any) -> dict[str, Any]:
    made = {"topology_epoch": 0, "content_hash": str(days), "is_newest": True, "status": "AVAILABLE", "text": TEXT}
    return {"group_id": group_id, **made, "node_count": 1, "fetched_at": FETCHED_AT + timedelta(days=days), **columns}


@pytest.fixture(scope="module")
def descriptions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("descriptions"))
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


@pytest.mark.parametrize(
    ("group_id", "end"),
    [
        ("stored", "."),
        ("lost", "; asked again, the broker said NOT_STORED."),
        ("replaced", ", no longer the one of the group's topology."),
    ],
)
def test_the_newest_description_is_printed_and_which_one_it_is(descriptions: Path, group_id: str, end: str) -> None:
    result = run(descriptions, "describe", group_id, "--description", "--topology")
    assert (result.exit_code, result.stdout) == (0, TEXT)
    assert result.stderr == f"Description of topology epoch 0, fetched at 2026-11-22 09:00:00Z{end}\n"
    printed = as_json(descriptions, "describe", group_id, "--description")
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
def test_none_is_a_line_that_says_why(descriptions: Path, group_id: str, line: str) -> None:
    result = run(descriptions, "describe", group_id, "--description")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: {line}")


def test_an_application_with_the_classic_protocol_is_described_as_a_streams_group(tmp_path: Path) -> None:
    warehouse = Warehouse(tmp_path)
    generations = generation(
        5,
        thread("a", subscription(P1, {(1, 0): 40}, tags={"zone": "z"}), assignment([(0, 0), (1, 0)])),
        thread("b", subscription(P2), assignment([(0, 1)], [(1, 0)])),
    )
    append(warehouse.path, "groups", to_row("default", fold(records(generations)).group))
    record = {"group_id": "g", "record_type": 2, "member_id": "", "deleted": False, "protocol_type": "consumer"}
    newest = {"protocol": "stream", "epoch": 5, "member_count": 2, "recorded_at": AT, "last_offset": 0}
    append(warehouse.path, "group_records", {"cluster": "default", **record, **newest})
    members = [line.split() for line in warehouse.describe("g", "--members").splitlines()]
    assert members[1:] == [
        ["g", "a", str(P1), "g-a", "ACTIVE:", "0:[0];", "1:[0]"],
        ["g", "b", str(P2), "g-b", "ACTIVE:", "0:[1];", "STANDBY:", "1:[0]"],
    ]
    assert "zone=z" in warehouse.describe("g", "--members", "--verbose")
    topology = [line.split() for line in warehouse.describe("g", "--topology", "--verbose").splitlines()]
    assert topology[1:3] == [
        ["g", "-", "0", "words", "-", "-", "-", "-"],
        ["g", "-", "1", "letters", "g-word-repartition", "-", "-", "-"],
    ]
    (row,) = as_json(warehouse.path, "describe", "g", "--members")
    assert (row["protocol"], row["members"][0]["process_id"]) == ("classic", str(P1))
    state = [line.split() for line in warehouse.describe("g", "--state").splitlines()]
    assert state[1][:4] == ["g", "-", "Classic", "consumer"]
    assert warehouse.describe("g", "--copies")

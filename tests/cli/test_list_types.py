"""`list --type`: GROUP TYPE PROTOCOL, as kafka-groups.sh --list prints them."""

from pathlib import Path

import pytest

from streaming_app.health.verdict import DOWN, Verdict
from streaming_app.tables.health_tables import HealthRow, HealthTable
from tests.cli.commands import as_json, run, words
from tests.support.encode import encode, encode_embedded
from tests.support.health_harness import ago
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse
from tests.tables.test_newest_views import classic, commit, consumer, write

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_warehouse(tmp_path_factory.mktemp("warehouse"))
    ready = consumer("ready", epoch=4, assignment=4, members=[(4, 0)])
    groups = [classic("app", members=1, protocol="stream"), classic("old", members=0, protocol_type="connect"), *ready]
    write(path, [*groups, commit("tool", 5), commit("\x1b[2J", 5)], cluster="default")
    return path


def test_all_groups_are_listed_with_their_types_and_protocols(warehouse: Path) -> None:
    assert words(warehouse, "list", "--type", "all") == [
        ["GROUP", "TYPE", "PROTOCOL"],
        ["\\x1b[2J", "Classic", "-"],
        ["app", "Classic", "consumer"],
        ["old", "Classic", "connect"],
        ["ready", "Consumer", "consumer"],
        ["tool", "Classic", "-"],
    ]


def test_types_and_states_limit_the_list(warehouse: Path) -> None:
    def listed(*arguments: str) -> list[list[str]]:
        return words(warehouse, "list", *arguments)[1:]

    assert listed("--type", "Consumer,share") == [["ready", "Consumer", "consumer"]]
    assert [line[0] for line in listed("--type", "classic", "--state", "empty")] == ["\\x1b[2J", "old", "tool"]
    assert ["app", "Classic", "consumer", "-"] in listed("--type", "all", "--state")
    assert listed("--type", "streams") == listed("--state") == []
    assert listed() == [["app", "-"]]
    result = run(warehouse, "list", "--type", "simple")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("Error: No such type: simple. Valid types are: all, streams, ")


def test_verdicts_are_listed_of_kafka_streams_with_either_protocol(tmp_path: Path) -> None:
    path = make_warehouse(tmp_path)
    groups = [classic("app", members=1, protocol="stream"), classic("plain", members=1), classic("range", members=0)]
    write(path, groups, cluster="default")
    append(path, "groups", group_row("streams-one", "Stable"))
    of_classic = Verdict(DOWN, ago(minutes=9), ago(minutes=4), "no members since 03:03", None, {"protocol": "classic"})
    of_plain = Verdict(DOWN, ago(minutes=9), ago(minutes=4), "no progress", "critical")
    rows = [HealthRow("app", of_classic, of_classic.at, {}), HealthRow("plain", of_plain, of_plain.at, {})]
    HealthTable(path, "default").append(rows)

    def listed(*arguments: str) -> list[list[str]]:
        return [line[:2] for line in words(path, "list", *arguments)[1:]]

    assert listed("--health") == [["app", "Down"], ["streams-one", "Unknown"]]
    assert listed("--health", "down,Stalled") == [["app", "Down"]]
    assert "No such verdict: Dwn" in run(path, "list", "--health", "Dwn").stderr
    assert listed("--type", "classic", "--health", "Down") == [["app", "Classic"], ["plain", "Classic"]]
    assert listed() == listed("--health")
    assert listed("--state") == [["streams-one", "Stable"]]
    lines = run(path, "why", "app").stdout.splitlines()
    assert lines[0].startswith("app is Down since 2026-11-21 03:03:00Z: no members since")
    assert "members and tasks as of the last rebalance" in lines[1]
    assert lines[-1].startswith("  What to do: No members: read the end of the application's log")


def test_the_state_of_a_classic_group_with_members_is_what_the_brokers_said_last(tmp_path: Path) -> None:
    path = make_warehouse(tmp_path)
    write(path, [classic("moving", members=1), classic("old", members=0)], cluster="default")
    for cluster, state in (("default", "PreparingRebalance"), ("other", "Stable")):
        fact = {"kind": "group_state", "subject": "moving", "name": "state", "group_id": "moving"}
        append(path, "broker_facts", {**fact, "cluster": cluster, "value": state})

    def listed(state: str) -> list[list[str]]:
        return words(path, "list", "--type", "all", "--state", state)[1:]

    assert listed("preparing_rebalance") == [["moving", "Classic", "consumer", "PreparingRebalance"]]
    assert listed("Empty") == [["old", "Classic", "consumer", "Empty"]]
    assert listed("Stable") == []
    (moving,) = as_json(path, "describe", "--group", "moving")
    assert (moving["state"], "known_state" in moving) == ("PreparingRebalance", False)


TOPIC_ID = "B" * 22
WANTS = encode_embedded("ConsumerProtocolSubscription", 1, {"topics": ["a", "b", "c"]})
OWNED = [{"topic": "b", "partitions": [1, 0]}, {"topic": "a", "partitions": [7]}]
OWNS = encode_embedded("ConsumerProtocolAssignment", 3, {"assigned_partitions": OWNED})


def test_members_of_classic_and_consumer_groups_are_described_with_their_hosts_and_what_they_have(
    tmp_path: Path,
) -> None:
    path = make_warehouse(tmp_path)
    one = {"member_id": "m1", "client_id": "c1", "client_host": "/10.0.0.1", "subscription": WANTS}
    odd = {**one, "subscription": b"", "member_id": "m2", "group_instance_id": "i2", "assignment": b"\x00\x01\x7f\xff"}
    group = {"protocol_type": "consumer", "generation": 3, "protocol": "range", "leader": "m2"}
    key = {"group_id": "new", "member_id": "n1"}
    has = {"member_epoch": 4, "state": 0, "assigned_partitions": [{"topic_id": TOPIC_ID, "partitions": [4, 2]}]}
    of_orders = {"subscribed_topic_names": ["orders"]}
    committed = {"offset": 1, "metadata": "", "commit_timestamp": 1, "topic_id": TOPIC_ID}
    pairs = [
        encode(2, {"group": "old"}, group | {"members": [one | {"assignment": OWNS}, odd]}),
        *consumer("new", epoch=4, assignment=4, members=[]),
        encode(
            5, key, {"client_id": "c3", "client_host": "/10.0.0.3", "instance_id": "i3", "rack_id": None, **of_orders}
        ),
        encode(8, key, has),
        encode(1, {"group": "new", "topic": "orders", "partition": 4}, committed),
        encode(5, {"group_id": "new", "member_id": "left"}, None),
        *consumer("large", epoch=4, assignment=4, members=[(4, 0)]),  # whose value stays in the JVM
        encode(11, {"group_id": "shared"}, {"epoch": 2, "metadata_hash": 0}),
        (encode(10, {"group_id": "shared", "member_id": "s1"}, None)[0], b""),
    ]
    write(path, pairs, cluster="default")
    assert words(path, "describe", "--group", "old", "--members") == [
        ["GROUP", "MEMBER", "INSTANCE-ID", "CLIENT-ID", "HOST", "LEADER", "SUBSCRIPTION", "ASSIGNMENT"],
        ["old", "m1", "-", "c1", "10.0.0.1", "-", "a,b,c", "a(7),", "b(0,1)"],
        ["old", "m2", "i2", "c1", "10.0.0.1", "yes", "-", "-"],
    ]
    for group_id, line in (
        ("new", "new n1 i3 c3 10.0.0.3 - orders orders(2,4)"),
        ("large", "large 0 - - - - - -"),
        ("shared", "shared s1 - - - - - -"),
    ):
        assert words(path, "describe", group_id, "--members")[1:] == [line.split()]
    result = run(path, "describe", "--group", "none", "--members")
    assert (result.exit_code, result.stdout) == (1, "")


def test_a_group_of_another_type_is_described_by_what_is_known_of_it(warehouse: Path) -> None:
    coordinator = {"kind": "coordinator", "subject": "__consumer_offsets-0", "name": "coordinator"}
    append(warehouse, "broker_facts", {**coordinator, "value": "b:9092 (1)"})  # all groups are in the only partition
    assert words(warehouse, "describe", "--group", "app", "--group", "ready", "--state") == [
        ["GROUP", "COORDINATOR", "(ID)", "TYPE", "PROTOCOL", "STATE", "#MEMBERS", "GROUP-EPOCH", "ASSIGNOR", "OFFSETS"],
        ["app", "b:9092", "(1)", "Classic", "consumer", "-", "1", "3", "stream", "0"],
        ["ready", "b:9092", "(1)", "Consumer", "consumer", "Stable", "1", "4", "-", "0"],
    ]
    assert run(warehouse, "describe", "app").stdout == "app has no verdict and no committed offsets: see --state.\n"
    (app,) = as_json(warehouse, "describe", "--group", "app")
    assert (app["group_type"], app["kafka_streams"], app["state"]) == ("classic", True, None)


def test_what_a_group_of_another_type_does_not_have_is_said_in_one_line(warehouse: Path) -> None:
    append(warehouse, "groups", group_row("streams-one", "Stable"))
    for arguments in (("--group", "app", "--topology"), ("--group", "app", "--group", "streams-one", "--state")):
        result = run(warehouse, "describe", *arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        last = result.stderr.splitlines()[-1]
        assert last.startswith("Error: 'app' is a classic group, not a streams group: describe it by itself, with ")

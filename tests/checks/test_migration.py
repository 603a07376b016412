"""`migrate check`: what the log shows of a group, what nothing shows, the steps there and back."""

import json
from pathlib import Path
from typing import Any

import pytest

from streaming_app.checks.migration import Facts, check_cluster, check_group, ways
from streaming_app.groups.row import to_row
from streaming_app.kafka.releases import BrokerRelease
from tests.cli.commands import run
from tests.groups.classic_records import P2, assignment, generation, records, subscription, thread
from tests.groups.records import FIRST_JOIN, fold, log
from tests.support.heartbeats import write_heartbeat
from tests.support.warehouses import append, make_warehouse

ACTIVE = thread("m1", subscription(sums={(0, 0): -2}, tags={"zone": "a"}), assignment([(0, 0)]), instance="i-1")
STANDBY = thread("m2", subscription(P2, {(0, 0): 5}), assignment([(1, 0)], [(0, 0)]), instance="i-2")
PLAIN = thread("m1", subscription(), assignment([(0, 0)]))


def release(broker: int, name: str, enabled: int = 1) -> BrokerRelease:
    return BrokerRelease(broker, name, {"streams.version": enabled})


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Classic groups: with standbys (`rich`), one member (`plain`), none (`empty`); `new` has the streams protocol."""
    made = make_warehouse(tmp_path)
    groups = {
        "rich": records(generation(1, ACTIVE, STANDBY)),
        "plain": records(generation(1, PLAIN)),
        "empty": records(generation(1, PLAIN), generation(2)),
        "gone": records(generation(1, PLAIN), None),
        "new": log(*FIRST_JOIN),
    }
    append(made, "groups", *(to_row("default", fold(some).group) | {"group_id": name} for name, some in groups.items()))
    write_heartbeat(made)
    return made


def checked(warehouse: Path, *groups: str, code: int = 0) -> dict[str, Any]:
    ran = run(warehouse, "migrate", "check", *groups, "--json")
    assert ran.exit_code == code, ran.output
    return dict(json.loads(ran.stdout))


def statuses(results: list[dict[str, str]]) -> dict[str, str]:
    return {one["check"]: one["status"] for one in results}


def test_every_classic_group_of_the_cluster_has_its_checks_steps_and_way_back(warehouse: Path) -> None:
    found = checked(warehouse)
    assert [(one["group_id"], one["protocol"]) for one in found["groups"]] == [
        ("empty", "classic"),
        ("plain", "classic"),
        ("rich", "classic"),
    ]
    empty, plain, rich = ({**statuses(one["results"])} for one in found["groups"])
    assert (empty["state"], plain["state"], rich["state"]) == ("ok", "warning", "warning")
    of_members = ("clients", "static members", "client tags", "session time-out")
    assert {empty[name] for name in of_members} == {"not known"}  # nobody is there to be seen
    assert (plain["static members"], plain["client tags"], rich["client tags"]) == ("ok", "ok", "warning")
    assert (plain["clients"], plain["topology"], plain["other settings"]) == ("not known",) * 3
    assert rich["warm-ups"] == "warning"


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ([], {"brokers": "not known", "streams.version": "not known", "static members": "not known"}),
        ([release(1, "4.4")], {"brokers": "ok", "streams.version": "ok", "static members": "ok"}),
        ([release(1, "4.3")], {"brokers": "ok", "static members": "failed"}),
        ([release(1, "4.2")], {"brokers": "not known", "static members": "failed"}),
        ([release(1, "4.4"), release(2, "4.1")], {"brokers": "failed", "static members": "failed"}),
        ([release(1, "4.4", enabled=0)], {"brokers": "ok", "streams.version": "failed"}),
    ],
    ids=["nobody was asked", "4.4", "4.3", "4.2", "a mix", "not enabled"],
)
def test_brokers_that_cannot_take_it_fail_the_check(brokers: list[BrokerRelease], expected: dict[str, str]) -> None:
    row = to_row("default", fold(records(generation(1, ACTIVE, STANDBY))).group)
    facts = Facts(row=row, brokers=brokers, states={"g": "Stable"})
    known = {one.check: one.status for one in (*check_cluster(facts), *check_group(facts))}
    assert {name: known[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("configs", "status"),
    [
        ({}, "not known"),
        ({1: {}, 2: {"group.coordinator.rebalance.protocols": "classic,consumer"}}, "failed"),
        ({1: {}, 2: {"group.coordinator.rebalance.protocols": "classic,consumer,streams"}}, "ok"),
    ],
)
def test_brokers_that_take_no_streams_groups_by_their_configuration_fail_the_check(
    configs: dict[int, dict[str, str]], status: str
) -> None:
    found = check_cluster(Facts(brokers=[release(1, "4.4"), release(2, "4.4")], configs=configs))
    assert {one.check: one.status for one in found}["group.coordinator.rebalance.protocols"] == status


@pytest.mark.parametrize(
    ("now", "limits", "status", "command"),
    [
        (None, {}, "not known", "streams.num.standby.replicas=1,streams.session.timeout.ms=45000"),
        ("45000", {}, "ok", "streams.num.standby.replicas=1"),
        ("60000", {}, "warning", "streams.num.standby.replicas=1,streams.session.timeout.ms=45000"),
        ("60000", {"group.streams.min.session.timeout.ms": "60000"}, "warning", "streams.num.standby.replicas=1"),
    ],
)
def test_a_config_of_the_group_is_set_within_the_limits_of_the_brokers(
    now: str | None, limits: dict[str, str], status: str, command: str
) -> None:
    row = to_row("default", fold(records(generation(1, ACTIVE, STANDBY))).group)
    own = {"streams.num.standby.replicas": "0"} | ({"streams.session.timeout.ms": now} if now else {})
    facts = Facts(row=row, configs={1: limits}, group_configs={"g": own})
    known = {one.check: one.status for one in check_group(facts)}
    assert (known["standbys"], known["session time-out"]) == ("warning", status)
    (said,) = ways(facts, "broker:9092")["steps"][1]["commands"]
    assert said.endswith(f"--add-config {command}")


def test_a_client_older_than_3_2_fails_the_check(warehouse: Path) -> None:
    row = to_row("default", fold(records(generation(1, PLAIN))).group)
    append(warehouse, "groups", {**row, "group_id": "old", "members": [{**row["members"][0], "client_version": 9}]})
    (found,) = checked(warehouse, "old", code=1)["groups"]
    assert statuses(found["results"])["clients"] == "failed"


def test_a_group_that_has_the_streams_protocol_only_has_the_way_back(warehouse: Path) -> None:
    (found,) = checked(warehouse, "new")["groups"]
    assert (statuses(found["results"])["protocol"], "steps" in found) == ("ok", False)
    assert "group.protocol=classic" in found["way_back"][2]["text"]


def test_a_cluster_without_classic_applications_is_said_to_have_none(tmp_path: Path) -> None:
    write_heartbeat(make_warehouse(tmp_path))
    ran = run(tmp_path, "migrate", "check")
    assert ran.exit_code == 0, ran.output
    assert "No group of Kafka Streams has the classic protocol." in ran.stdout.splitlines()


def test_brokers_that_do_not_answer_are_not_known(warehouse: Path) -> None:
    ran = run(warehouse, "migrate", "check", "plain", "--bootstrap-server", "127.0.0.1:1")
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith("not known  brokers: No Kafka broker answers at 127.0.0.1:1")
    assert "--bootstrap-server 127.0.0.1:1 --describe" in ran.stdout
    assert "1. Upgrade every instance" in ran.stdout
    assert "The way back:" in ran.stdout

"""What brokers are and can do: asked of real ones of every release, and what follows for the tables."""

from datetime import datetime, timezone
from pathlib import Path

import pytest

from streaming_app.checks.brokers import judge_releases
from streaming_app.checks.result import WARNING
from streaming_app.kafka.releases import (
    DESCRIPTIONS,
    READINESS,
    TASK_OFFSETS,
    BrokerRelease,
    describe_releases,
    release_of,
    why_unknown,
)
from tests.cli.commands import run
from tests.support.heartbeats import write_heartbeat
from tests.support.rows import group_row, member_row, subtopology_row, task_row
from tests.support.warehouses import append, make_warehouse

AT = datetime(2026, 11, 24, 8, tzinfo=timezone.utc)
ON = {"streams.version": 1, "group.version": 1}
UNKNOWN_STATE = "the state of groups with members is Unknown: brokers before 4.2 do not write whether a group is ready"


@pytest.mark.parametrize(
    ("metadata", "requests", "release"),
    [
        (25, {78: 1}, "before 4.1"),
        (29, {78: 1}, "4.1"),  # unstable features are enabled
        (29, {78: 2}, "4.2"),
        (31, {78: 2}, "4.3"),
        (33, {78: 2, 93: 0}, "4.4"),
        (36, {78: 2, 93: 0}, "after 4.4"),
    ],
)
def test_metadata_and_requests_tell_the_release(metadata: int, requests: dict[int, int], release: str) -> None:
    assert release_of(metadata, requests) == release


def broker(broker_id: int, release: str) -> BrokerRelease:
    return BrokerRelease(broker_id, release, {**ON, "metadata.version": 29})


def test_brokers_of_two_releases_are_told_apart_in_the_middle_of_an_upgrade() -> None:
    upgrading = [broker(1, "4.4"), broker(2, "4.1"), broker(3, "4.4")]
    assert describe_releases(upgrading) == (
        "Kafka 4.1, streams.version 1, group.version 1, metadata.version 29 (broker 2); "
        "Kafka 4.4, streams.version 1, group.version 1, metadata.version 29 (brokers 1, 3)"
    )
    assert why_unknown(READINESS, upgrading) == f"{UNKNOWN_STATE}, and broker 2 is Kafka 4.1"
    assert why_unknown(DESCRIPTIONS, [broker(1, "4.2"), broker(2, "4.1")]) == (
        "there are no topology descriptions: brokers before 4.4 do not ask clients for them, and brokers 1, 2 "
        "are Kafka 4.1, 4.2"
    )
    assert why_unknown(TASK_OFFSETS, [broker(1, "after 4.4"), broker(2, "4.4")]) is None
    assert why_unknown(TASK_OFFSETS, []) is None
    assert [result.status for result in judge_releases([broker(1, "before 4.1")])] == [WARNING] * 3
    assert list(judge_releases([])) == []
    warned = [["KAFKA-20254" in one.text for one in judge_releases([broker(1, of)])] for of in ("4.1", "4.2", "4.3")]
    assert list(map(any, warned)) == [False, True, False]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    path = make_warehouse(tmp_path)
    tasks = [task_row("m", "0_0", "active", current=True)]
    rest = {"members": [member_row("m")], "assignments": tasks, "subtopologies": [subtopology_row(changelogs=["c"])]}
    append(path, "groups", group_row("g", "Unknown", **rest))
    write_heartbeat(path)
    return path


def test_commands_explain_what_is_unknown_by_the_release_of_the_brokers(warehouse: Path) -> None:
    asked = "for running active tasks; brokers return it since Kafka 4.4 to a job with Describe on the group.\n"
    assert run(warehouse, "describe", "g", "--copies").stderr.endswith(asked)
    assert run(warehouse, "list", "--state").stderr == ""
    assert "\nbrokers   not asked yet: " in run(warehouse, "status").stdout

    for broker_id, release in (("1", "4.1"), ("2", "4.4")):
        for name, value in (("release", release), ("streams.version", "1")):
            fact = {"kind": "feature", "subject": broker_id, "name": name, "value": value, "observed_at": AT}
            append(warehouse, "broker_facts", fact)
    reason = f"{UNKNOWN_STATE}, and broker 1 is Kafka 4.1"
    assert run(warehouse, "list", "--state").stderr == f"{reason}\n"
    assert run(warehouse, "describe", "--group", "g", "--state").stderr == f"{reason}\n"
    assert run(warehouse, "describe", "--group", "g", "--members").stderr == ""
    status = run(warehouse, "status").stdout
    assert f"\nunknown   {reason}\n" in status
    assert "(broker 1); Kafka 4.4, streams.version 1, group.version not enabled" in status
    assert run(warehouse, "describe", "g", "--copies").stderr.endswith(
        "The lag of copies is not known: brokers before 4.4 do not tell what clients report, "
        "and broker 1 is Kafka 4.1.\n"
    )

"""Real applications with the classic protocol, of five releases: rows are equal to what the applications have."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from tests.support.classic_application import PROPERTIES, ClassicGroup
from tests.support.container import Broker
from tests.support.streams_application import StreamsApplication
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.java]

VERSIONS_OF_CLIENTS = {"4.4.0": 11, "3.9.2": 11, "3.6.2": 11, "2.8.2": 9, "4.1.2": 11}
"""Release -> the newest version of SubscriptionInfo that it supports."""
ZONES = {
    "0.application.server": "localhost:31401",
    "1.application.server": "localhost:31402",
    "0.client.tag.zone": "a",
    "1.client.tag.zone": "b",
}
_PARTITIONS = 3
_STATIC = "group.instance.id"


class Start(Protocol):
    """Starts an application, or a further process of it; `topics` come before the output."""

    def __call__(self, topology: str, *topics: str, name: str = "1", **options: Any) -> StreamsApplication: ...


@pytest.fixture
def start(broker: Broker, client: StreamsGroupClient, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Start]:
    prefix = unique("classic")
    existing = set[str]()

    def started(topology: str, *topics: str, name: str = "1", **options: Any) -> StreamsApplication:
        topics = tuple(f"{prefix}-{topic}" for topic in (*topics, "out"))
        for topic in topics:
            if topic not in existing:
                client.create_topic(topic, _PARTITIONS)
                existing.add(topic)
        options["properties"] = PROPERTIES | options.get("properties", {})
        return running.enter_context(
            StreamsApplication(broker.bootstrap_server, tmp_path / name, prefix, topology, topics, **options)
        )

    with ExitStack() as running:
        yield started


def sources(row: dict[str, Any]) -> dict[str, list[str]]:
    """Return the source topics of each subtopology, without the application's id."""
    return {
        one["subtopology_id"]: [
            topic.removeprefix(f"{row['group_id']}-")
            for topic in (*one["source_topics"], *(topic["name"] for topic in one["repartition_source_topics"]))
        ]
        for one in row["subtopologies"]
    }


JOIN = {"0": ["customers", "orders"], "1": ["by-region-repartition"]}
WORDS = {"0": ["lines"], "1": ["words-repartition"]}


@pytest.mark.parametrize(("version", "client_version"), VERSIONS_OF_CLIENTS.items())
def test_threads_standbys_and_endpoints_of_each_release_are_those_of_the_application(
    broker: Broker, start: Start, version: str, client_version: int
) -> None:
    properties = {**ZONES, "num.stream.threads": "3"}
    application = start("join", "orders", "customers", instances=2, version=version, properties=properties)
    group = ClassicGroup(broker.bootstrap_server, [application], threads=6, active=6, standbys=6)
    row, events = group.settled()
    assert sources(row) == JOIN
    assert {one["subtopology_id"]: one["has_state"] for one in row["subtopologies"]} == {"0": True, "1": True}
    assert {one["client_version"] for one in row["members"]} == {client_version}
    by_process = {(one["process_id"], one["user_endpoint"], *one["client_tags"]) for one in row["members"]}
    tags = [("zone", "a"), ("zone", "b")] if client_version >= 11 else [(), ()]  # before, clients do not send them
    expected = [(f"localhost:3140{number}", *(tag and (tag,))) for number, tag in enumerate(tags, 1)]
    assert sorted(one[1:] for one in by_process) == expected
    assert len([one for one in events if one["kind"] == "member_joined"]) >= 6


def test_an_exactly_once_application_spreads_its_standbys_over_racks(broker: Broker, start: Start) -> None:
    exactly_once = {"processing.guarantee": "exactly_once_v2", "rack.aware.assignment.tags": "zone"}
    application = start("join", "orders", "customers", instances=2, properties={**ZONES, **exactly_once})
    application.produce(on=True)
    row, _ = ClassicGroup(broker.bootstrap_server, [application], threads=4, active=6, standbys=6).settled()
    zones = {one["member_id"]: dict(one["client_tags"])["zone"] for one in row["members"]}
    copies: dict[tuple[str, int], list[str]] = {}
    for one in row["assignments"]:
        copies.setdefault((one["subtopology_id"], one["partition"]), []).append(zones[one["member_id"]])
    assert {tuple(sorted(one)) for one in copies.values()} == {("a", "b")}


def test_a_static_instance_that_is_back_in_time_keeps_the_generation_and_its_tasks(
    broker: Broker, start: Start
) -> None:
    long_session = {"session.timeout.ms": "120000"}
    applications = [
        start("words", "lines", name=name, properties={**long_session, _STATIC: name}) for name in ("one", "two")
    ]
    group = ClassicGroup(broker.bootstrap_server, applications, threads=4, active=6, standbys=3)
    before, _ = group.settled()
    assert {one["instance_id"] for one in before["members"]} == {f"{name}-{n}" for name in ("one", "two") for n in "12"}
    instance_of = {one["member_id"]: one["instance_id"] for one in before["members"]}
    applications[1].stop()
    assert {one["member_id"] for one in group.row()["members"]} == instance_of.keys()
    applications[1].start()

    def is_back(row: dict[str, Any]) -> bool:
        gone = instance_of.keys() - {one["member_id"] for one in row["members"]}
        return {instance_of[one] for one in gone} == {"two-1", "two-2"}

    after, _ = group.settled(is_back)
    assert after["group_epoch"] == before["group_epoch"]
    assert {one["process_id"] for one in after["members"]} == {one["process_id"] for one in before["members"]}


@pytest.mark.parametrize("end", [StreamsApplication.stop, StreamsApplication.kill])
def test_tasks_of_an_instance_that_ended_move_to_the_other_one_and_back_and_its_process_id_stays(
    broker: Broker, start: Start, end: Callable[[StreamsApplication], None]
) -> None:
    applications = [start("words", "lines", name=name) for name in ("one", "two")]
    both = ClassicGroup(broker.bootstrap_server, applications, threads=4, active=6, standbys=3)
    before, _ = both.settled()
    end(applications[1])
    ClassicGroup(broker.bootstrap_server, applications[:1], threads=2, active=6, standbys=0).settled()
    applications[1].start()
    after, events = both.settled()
    assert after["group_epoch"] > before["group_epoch"]
    assert {one["process_id"] for one in after["members"]} == {one["process_id"] for one in before["members"]}
    assert len({one["member_id"] for one in after["members"]} & {one["member_id"] for one in before["members"]}) == 2
    assert sum(one["kind"] == "member_left" for one in events) >= 2
    assert sources(after) == WORDS


def test_two_releases_in_one_group_agree_on_a_version_and_each_member_has_its_own(broker: Broker, start: Start) -> None:
    applications = [start("words", "lines", name="old", version="2.8.2")]
    server = broker.bootstrap_server
    ClassicGroup(server, applications, threads=2, active=6, standbys=0).settled()
    applications.append(start("words", "lines", name="new"))
    both = ClassicGroup(server, applications, threads=4, active=6, standbys=3)
    row, _ = both.settled()
    told = both.used_versions()
    assert [9, 9, 11, 11] in told  # the new ones tell 11 until the leader refuses it
    assert told[-1] == [9, 9, 9, 9]
    assert sorted(one["client_version"] for one in row["members"]) == [9, 9, 11, 11]
    applications[0].stop()
    alone = ClassicGroup(server, applications[1:], threads=2, active=6, standbys=0)
    row, _ = alone.settled(lambda _: set(alone.used_versions()[-1]) == {11})
    assert sources(row) == WORDS


def test_a_copy_that_must_catch_up_is_a_warm_up_while_a_probing_rebalance_is_set(broker: Broker, start: Start) -> None:
    behind = {"acceptable.recovery.lag": "0", "num.standby.replicas": "0", "max.warmup.replicas": "10"}
    applications = [start("words", "lines", name="one", properties=behind)]
    applications[0].produce(on=True)
    server = broker.bootstrap_server
    assert wait_until(lambda: any(one["end"] > 0 for one in applications[0].tasks()[0]["lags"]), interval=0.5)
    before, _ = ClassicGroup(server, applications, threads=2, active=6, standbys=0).settled()
    assert {one["role"] for one in before["assignments"]} == {"active"}
    applications.append(start("words", "lines", name="two", properties=behind))
    group = ClassicGroup(server, applications, threads=4, active=6, standbys=None)
    row, _ = group.settled(lambda row: row["probing_rebalance_at"] and _roles(row)["warmup"])
    assert _roles(row)["standby"] == 0
    first = {one["process_id"] for one in before["members"]}
    process_of = {one["member_id"]: one["process_id"] for one in row["members"]}
    assert first.isdisjoint(process_of[one["member_id"]] for one in row["assignments"] if one["role"] == "warmup")


def _roles(row: dict[str, Any]) -> Counter[str]:
    return Counter(one["role"] for one in row["assignments"] if one["current"])

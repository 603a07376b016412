"""Records that a broker writes for simulated members: the facts on which the decoder and the tables depend."""

from collections.abc import Callable
from typing import Any

import pytest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology

pytestmark = pytest.mark.broker
GROUP_METADATA = 17
VALIDATED, CONFIGS, STORED, FAILED = 0, 1, 2, 3  # tags of StreamsGroupMetadata


def tags(value: bytes) -> dict[int, bytes]:
    """The tagged fields of a StreamsGroupMetadata value, after version (2 bytes), epoch (4) and metadata hash (8)."""
    assert value[:2] == b"\0\0"
    count, position, fields = value[14], 15, {}
    for _ in range(count):
        tag, size = value[position], value[position + 1]
        fields[tag] = value[position + 2 : position + 2 + size]
        position += 2 + size
    assert position == len(value)
    return fields


def epoch(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


@pytest.fixture
def metadata(read_offsets: Callable[..., list[Any]]) -> Callable[[str, str], list[bytes]]:
    """The values of a group's StreamsGroupMetadata records in log order."""
    return lambda server, group_id: [
        record.value for record in read_offsets(server, group_id) if record.record_type == GROUP_METADATA
    ]


def test_a_group_that_is_not_ready_has_no_validated_epoch_and_no_metadata_hash(
    client: StreamsGroupClient, broker: Broker, group_id: str, metadata: Callable[[str, str], list[bytes]]
) -> None:
    member = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[f"{group_id}-gone"])))
    member.join()
    member.step()
    (value,) = metadata(broker.bootstrap_server, group_id)
    assert int.from_bytes(value[2:6], "big") == 2
    assert value[6:14] == bytes(8)
    assert tags(value) == {CONFIGS: b"\x02\x15num.standby.replicas\x020\x00"}


def test_every_push_writes_uncertain_and_then_stored_even_if_unsolicited(
    client: StreamsGroupClient,
    broker: Broker,
    group_id: str,
    unique: Callable[[str], str],
    metadata: Callable[[str, str], list[bytes]],
) -> None:
    topic = unique("in")
    client.create_topic(topic)
    member = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[topic])), topology_epoch=3)
    member.join()
    settle([member])
    before = len(metadata(broker.bootstrap_server, group_id))
    member.push_description()
    member.push_description()
    values = metadata(broker.bootstrap_server, group_id)
    assert STORED not in tags(values[before - 1])
    assert [tags(value)[STORED] for value in values[before:]] == [epoch(-2), epoch(3)] * 2
    assert all(tags(value)[VALIDATED] == epoch(3) and FAILED not in tags(value) for value in values[before:])


@pytest.mark.parametrize(
    ("version", "described", "first_epoch", "expected"),
    [
        ("4.1.2", "NotReady", 1, set()),  # as every group on it: its describe returns no other state
        ("4.2.1", "Stable", 2, {VALIDATED, CONFIGS}),
        ("4.3.1", "Stable", 2, {VALIDATED, CONFIGS}),
        ("4.4.0", "Stable", 2, {VALIDATED, CONFIGS}),
    ],
)
def test_releases_differ_in_the_first_epoch_and_in_the_tags_they_write(
    version: str,
    described: str,
    first_epoch: int,
    expected: set[int],
    start_broker: Callable[..., LocalBroker],
    metadata: Callable[[str, str], list[bytes]],
) -> None:
    own = start_broker(version=version)
    with StreamsGroupClient(own.bootstrap_server) as client:
        client.create_topic("in")
        ready = SimulatedMember(client, "ready", topology(subtopology("0", source_topics=["in"])))
        not_ready = SimulatedMember(client, "not-ready", topology(subtopology("0", source_topics=["gone"])))
        for member in (ready, not_ready):
            member.join()
        settle([ready, not_ready], until=lambda: ready.settled and bool(ready.assignment["active"]))
        states = {group["group_id"]: group["group_state"] for group in client.describe(["ready", "not-ready"])}
    assert states == {"ready": described, "not-ready": "NotReady"}
    values = {name: metadata(own.bootstrap_server, name) for name in states}
    assert int.from_bytes(values["ready"][0][2:6], "big") == first_epoch
    assert set(tags(values["ready"][-1])) == expected
    assert set(tags(values["not-ready"][-1])) == expected - {VALIDATED}

"""Why groups are NotReady: our reasons compared with those in the heartbeat responses of a real broker."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from streaming_app.groups.not_ready import not_ready_reason
from streaming_app.groups.row import from_row
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields
from streaming_app.sandbox.member import SimulatedMember, internal_topic, settle, subtopology, topology
from tests.support.container import Broker
from tests.support.offsets_log import FoldedLog, LogReader
from tests.support.waiting import await_topics

TOO_MANY_REPLICAS = 3  # more than a single broker can have, so that it cannot create the topic


def missing_many(a: str, _b: str) -> list[Fields]:
    return [subtopology(str(number), source_topics=[f"{a}-{number}", f"{a}-x{number}"]) for number in range(3)]


def missing_changelogs(a: str, _b: str) -> list[Fields]:
    topics = [internal_topic(f"{a}-{number}-changelog", replication_factor=TOO_MANY_REPLICAS) for number in range(2)]
    return [subtopology("0", source_topics=[a], state_changelog_topics=topics)]


def copartition_with_a_fixed_repartition_topic(a: str, b: str) -> list[Fields]:
    name = f"{a}-repartition"
    return [
        subtopology("0", source_topics=[a], repartition_sink_topics=[name]),
        subtopology(
            "1",
            source_topics=[b],
            repartition_source_topics=[internal_topic(name, 5)],
            copartition_groups=[[b, name]],
        ),
    ]


@pytest.mark.broker
@pytest.mark.parametrize(
    "make_subtopologies",
    [
        missing_many,
        missing_changelogs,
        copartition_with_a_fixed_repartition_topic,
    ],
)
def test_the_reason_is_the_one_that_the_broker_returns_to_members(
    make_subtopologies: Callable[[str, str], list[Fields]],
    client: StreamsGroupClient,
    broker: Broker,
    group_id: str,
    unique: Callable[[str], str],
) -> None:
    a, b = unique("a"), unique("b")
    client.create_topic(a, 2)
    client.create_topic(b, 3)
    await_topics(client, group_id, topology(subtopology("0", source_topics=[a, b])))
    member = SimulatedMember(client, group_id, topology(*make_subtopologies(a, b)))
    member.join()
    settle([member], until=lambda: bool(member.statuses) and "delayed" not in str(member.statuses))
    ((status, detail),) = member.statuses

    with LogReader(broker.bootstrap_server) as reader:
        folded_log = FoldedLog()
        folded_log.add(reader.read())
    counts = {topic["name"]: len(topic["partitions"]) for topic in client.describe_topics()}
    found, _, reason = not_ready_reason(from_row(folded_log.rows[group_id]), counts).partition(": ")
    assert found == status
    expected = detail.partition("; Creation failed")[0]  # the broker appends it after it tried to create topics
    assert sorted_words(reason) == sorted_words(expected)


def sorted_words(text: str) -> list[str]:
    """Return the words in alphabetical order: the broker names internal topics in the order of a hash table."""
    return sorted(re.split(r"[ ,]+", text))

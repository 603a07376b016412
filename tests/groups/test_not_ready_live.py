"""Why groups are NotReady: our reasons compared with those in the heartbeat responses of a real broker."""

import re
from collections.abc import Callable

import pytest

from streaming_app.groups.not_ready import not_ready_reason
from streaming_app.groups.row import from_row
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from tests.support.container import Broker
from tests.support.offsets_log import FoldedLog, LogReader
from tests.support.waiting import await_topics


@pytest.mark.broker
def test_the_reason_is_the_one_that_the_broker_returns_to_members(
    client: StreamsGroupClient, broker: Broker, group_id: str, unique: Callable[[str], str]
) -> None:
    """Of which topologies it is what: `test_not_ready_oracle.py`, by the broker's own class."""
    source = unique("in")
    client.create_topic(source)
    await_topics(client, group_id, topology(subtopology("0", source_topics=[source])))
    missing = [subtopology(str(n), source_topics=[f"{source}-{n}", f"{source}-x{n}"]) for n in range(3)]
    member = SimulatedMember(client, group_id, topology(*missing))
    member.join()
    settle([member], until=lambda: bool(member.statuses) and "delayed" not in str(member.statuses))
    ((status, detail),) = member.statuses
    with LogReader(broker.bootstrap_server) as reader:
        folded_log = FoldedLog()
        folded_log.add(reader.read())
    counts = {topic["name"]: len(topic["partitions"]) for topic in client.describe_topics()}
    found, _, reason = not_ready_reason(from_row(folded_log.rows[group_id]), counts).partition(": ")
    assert found == status
    assert sorted_words(reason) == sorted_words(detail)


def sorted_words(text: str) -> list[str]:
    """Return the words in alphabetical order: the broker names topics in the order of a hash table."""
    return sorted(re.split(r"[ ,]+", text))

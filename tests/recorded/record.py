"""Records what real brokers of older releases write and say, into `<version>.jsonl.gz` beside this file.

    python -m tests.recorded.record [VERSION ...]

Each line is one record of `__consumer_offsets`, in the order of its partition; the last one is what the broker said of
all groups when the log was at rest.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from streaming_app.local.broker import LocalBroker
from streaming_app.protocol.client import StreamsGroupClient
from streaming_app.protocol.errors import GroupError
from streaming_app.protocol.member import Member, settle
from streaming_app.protocol.messages import Fields
from streaming_app.protocol.topology import internal_topic, subtopology, topology
from tests.history.log import LogReader, Raw

VERSIONS = ("4.1.2", "4.2.1", "4.3.1", "4.4.0")
_HERE = Path(__file__).parent
_IN = topology(subtopology("0", source_topics=["in"]))


def record(version: str, file: Path, say: Callable[[str], None]) -> None:
    """Run a broker, let groups live on it, and write down its log and what it says of them."""
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalBroker(Path(directory) / "broker", version=version, progress=say) as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        live(client, broker.bootstrap_server)
        with LogReader(broker.bootstrap_server) as reader:
            records = reader.read()
        known = sorted({raw.group_id for raw in records if raw.record_type >= 17})
        described = client.describe(known)
    write(file, records, described)
    say(f"{file.name}: {len(records)} records, {len(described)} groups, {file.stat().st_size:,} bytes")


def write(file: Path, records: list[Raw], described: list[Fields]) -> None:
    lines = [
        {
            "p": raw.partition,
            "o": raw.offset,
            "t": raw.timestamp_ms,
            "k": raw.key.hex(),
            "v": raw.value and raw.value.hex(),
        }
        for raw in sorted(records)
    ]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [*lines, {"described": described}])
    with file.open("wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
        packed.write(text.encode())


def read(file: Path) -> tuple[list[Raw], list[Fields]]:
    with gzip.open(file, "rt", encoding="utf-8") as opened:
        *lines, last = map(json.loads, opened)
    records = [
        Raw(line["p"], line["o"], line["t"], bytes.fromhex(line["k"]), line["v"] and bytes.fromhex(line["v"]))
        for line in lines
    ]
    return records, last["described"]


def live(client: StreamsGroupClient, server: str) -> None:
    """One group after another goes through what groups go through."""
    for name, partitions in (("in", 6), ("other", 6), ("narrow", 2)):
        client.create_topic(name, partitions)
    for scene in (grown_and_shrunk, emptied, deleted, born_again, not_ready, static, holding_on, stateful, mixed):
        scene(client)
    classic_before_and_after(client, server)


def joined(
    client: StreamsGroupClient, group_id: str, count: int, wanted: Fields = _IN, **settings: Any
) -> list[Member]:
    members = [
        Member(
            client,
            group_id,
            wanted,
            process_id=f"{group_id}-{number}",
            rack_id=f"rack-{number}",
            client_tags={"zone": f"z{number}", "ümlaut": "ß"},
            **settings,
        )
        for number in range(count)
    ]
    for member in members:
        member.join()
    rest(members)
    return members


def rest(members: list[Member]) -> None:
    """A 4.1 broker never says Stable, so the members' own tasks tell: all taken, and none given any more."""
    quiet = 0

    def at_rest() -> bool:
        nonlocal quiet
        quiet = quiet + 1 if all(one.settled and any(one.assignment.values()) for one in members) else 0
        return quiet > 5  # beats without news

    settle(members, until=at_rest)


def grown_and_shrunk(client: StreamsGroupClient) -> None:
    members = joined(client, "grown-and-shrunk", 3, user_endpoint=("host.example", 8080))
    members[1].leave()
    rest([members[0], members[2]])


def emptied(client: StreamsGroupClient) -> None:
    for member in joined(client, "emptied", 2):
        client.commit_offsets("emptied", {("in", 0): 7}, member.member_id, member.epoch)
        member.leave()


def deleted(client: StreamsGroupClient) -> None:
    for member in joined(client, "deleted", 1):
        member.leave()
    client.delete_group("deleted")


def born_again(client: StreamsGroupClient) -> None:
    for member in joined(client, "born-again", 2):
        member.leave()
    client.delete_group("born-again")
    joined(client, "born-again", 1)


def not_ready(client: StreamsGroupClient) -> None:
    member = Member(client, "not-ready", topology(subtopology("0", source_topics=["in", "gone"])))
    member.join()
    member.step()
    never = Member(client, "never-ready", topology(subtopology("0", source_topics=["gone"])))
    never.join()


def static(client: StreamsGroupClient) -> None:
    """Static members; before 4.4 there are none."""
    members = [Member(client, "static", _IN, instance_id=f"i{number}") for number in range(3)]
    try:
        members[0].join()
    except GroupError as refusal:
        if "not yet supported" not in refusal.message:
            raise
        return
    for member in members[1:]:
        member.join()
    rest(members)
    members[0].leave(for_a_while=True)
    members[1].leave(for_a_while=True)
    again = Member(client, "static", _IN, instance_id="i1")
    again.join()
    again.step()


def holding_on(client: StreamsGroupClient) -> None:
    first, second = Member(client, "holding-on", _IN), Member(client, "holding-on", _IN)
    first.join()
    rest([first])
    first.holds_on = True
    second.join()
    for _ in range(10):
        first.step()
        second.step()


def stateful(client: StreamsGroupClient) -> None:
    name = "stateful"
    client.configure_group(name, {"streams.num.standby.replicas": 1})
    store = [internal_topic(f"{name}-store-changelog", configs={"cleanup.policy": "compact"})]
    by_key = f"{name}-by-key-repartition"
    parts = [
        subtopology(
            "0",
            source_topics=["in", "other"],
            repartition_sink_topics=[by_key],
            copartition_groups=[["in", "other"]],
            state_changelog_topics=store,
        ),
        subtopology("1", source_topics=["narrow"], repartition_source_topics=[internal_topic(by_key, 3)]),
    ]
    joined(client, name, 2, topology(*parts))


def mixed(client: StreamsGroupClient) -> None:
    """Members of two topology epochs; a name of many alphabets."""
    name = 'mixed "ünï" 🎉'
    members = joined(client, name, 1, topology(subtopology("0", source_topics=["in"]), epoch=2))
    stale = Member(client, name, topology(subtopology("0", source_topics=["in"]), epoch=2), topology_epoch=1)
    with suppress(GroupError):
        stale.join()
    members[0].step()


def classic_before_and_after(client: StreamsGroupClient, server: str) -> None:
    """A group id goes from a classic group to a streams group, and another one the way back; 4.1 refuses both."""
    with classic(server, "was-classic"):
        pass
    with suppress(GroupError):
        joined(client, "was-classic", 1)
    for member in joined(client, "is-classic", 1):
        member.leave()
    with suppress(KafkaError), classic(server, "is-classic"):
        pass


@contextmanager
def classic(server: str, group_id: str) -> Iterator[None]:
    consumer = KafkaConsumer("in", bootstrap_servers=server, group_id=group_id)
    try:
        for _ in range(50):
            consumer.poll(timeout_ms=100)
            if consumer.assignment():
                break
        yield
    finally:
        consumer.close()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or VERSIONS:
        record(chosen, _HERE / f"{chosen}.jsonl.gz", print)

"""Records the log and the group descriptions of real brokers of several releases, in `<version>.jsonl.gz` next to this.

    python -m tests.recorded.record [VERSION ...]

Each line is one record of `__consumer_offsets`, in the order of its partition; the last one has the broker's
descriptions of all groups after the last record.
"""

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

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields, GroupError
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.member import SimulatedMember, internal_topic, settle, subtopology, topology
from tests.support.ivy import broker_jars
from tests.support.offsets_log import LogReader, RawRecord

VERSIONS = ("4.1.2", "4.2.1", "4.3.1", "4.4.0")
_HERE = Path(__file__).parent
_IN = topology(subtopology("0", source_topics=["in"]))


def record(version: str, file: Path, progress: Callable[[str], None]) -> None:
    """Start a broker, run every scenario on it, and write its log and its descriptions of the groups."""
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalBroker(Path(directory) / "broker", version=version, class_path=broker_jars(version)) as broker,
        StreamsGroupClient(broker.bootstrap_server) as client,
    ):
        run_scenarios(client, broker.bootstrap_server)
        with LogReader(broker.bootstrap_server) as reader:
            records = reader.read()
        group_ids = sorted({raw.group_id for raw in records if raw.record_type >= 17})
        descriptions = client.describe(group_ids)
    write(file, records, descriptions)
    progress(f"{file.name}: {len(records)} records, {len(descriptions)} groups, {file.stat().st_size:,} bytes")


def write(file: Path, records: list[RawRecord], descriptions: list[Fields]) -> None:
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
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in [*lines, {"described": descriptions}])
    with file.open("wb") as output, gzip.GzipFile("", "wb", 9, output, mtime=0) as compressed:
        compressed.write(text.encode())


def read(file: Path) -> tuple[list[RawRecord], list[Fields]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        *lines, last = map(json.loads, stream)
    records = [
        RawRecord(line["p"], line["o"], line["t"], bytes.fromhex(line["k"]), line["v"] and bytes.fromhex(line["v"]))
        for line in lines
    ]
    return records, last["described"]


def run_scenarios(client: StreamsGroupClient, server: str) -> None:
    """Run each scenario with a group of its own. The group ids are those in the stored logs."""
    for name, partitions in (("in", 6), ("other", 6), ("narrow", 2)):
        client.create_topic(name, partitions)
    for scenario in (
        scale_up_and_down,
        remove_all_members,
        delete_group,
        recreate_group,
        omit_source_topics,
        use_static_members,
        delay_revocation,
        use_state_stores,
        mix_topology_epochs,
    ):
        scenario(client)
    convert_classic_groups(client, server)


def join_members(
    client: StreamsGroupClient, group_id: str, count: int, group_topology: Fields = _IN, **settings: Any
) -> list[SimulatedMember]:
    members = [
        SimulatedMember(
            client,
            group_id,
            group_topology,
            process_id=f"{group_id}-{number}",
            rack_id=f"rack-{number}",
            client_tags={"zone": f"z{number}", "ümlaut": "ß"},
            **settings,
        )
        for number in range(count)
    ]
    for member in members:
        member.join()
    wait_until_stable(members)
    return members


def wait_until_stable(members: list[SimulatedMember]) -> None:
    """Wait until every member keeps its tasks: the state of a group in 4.1 is never Stable."""
    unchanged = 0

    def is_stable() -> bool:
        nonlocal unchanged
        has_tasks = all(member.settled and any(member.assignment.values()) for member in members)
        unchanged = unchanged + 1 if has_tasks else 0
        return unchanged > 5  # heartbeats in a row

    settle(members, until=is_stable)


def scale_up_and_down(client: StreamsGroupClient) -> None:
    members = join_members(client, "grown-and-shrunk", 3, user_endpoint=("host.example", 8080))
    members[1].leave()
    wait_until_stable([members[0], members[2]])


def remove_all_members(client: StreamsGroupClient) -> None:
    for member in join_members(client, "emptied", 2):
        client.commit_offsets("emptied", {("in", 0): 7}, member.member_id, member.epoch)
        member.leave()


def delete_group(client: StreamsGroupClient) -> None:
    for member in join_members(client, "deleted", 1):
        member.leave()
    client.delete_group("deleted")


def recreate_group(client: StreamsGroupClient) -> None:
    for member in join_members(client, "born-again", 2):
        member.leave()
    client.delete_group("born-again")
    join_members(client, "born-again", 1)


def omit_source_topics(client: StreamsGroupClient) -> None:
    member = SimulatedMember(client, "not-ready", topology(subtopology("0", source_topics=["in", "gone"])))
    member.join()
    member.step()
    never = SimulatedMember(client, "never-ready", topology(subtopology("0", source_topics=["gone"])))
    never.join()


def use_static_members(client: StreamsGroupClient) -> None:
    """Use static members, which brokers before 4.4 do not support."""
    members = [SimulatedMember(client, "static", _IN, instance_id=f"i{number}") for number in range(3)]
    try:
        members[0].join()
    except GroupError as error:
        if "not yet supported" not in error.message:
            raise
        return
    for member in members[1:]:
        member.join()
    wait_until_stable(members)
    members[0].leave(temporarily=True)
    members[1].leave(temporarily=True)
    rejoined = SimulatedMember(client, "static", _IN, instance_id="i1")
    rejoined.join()
    rejoined.step()


def delay_revocation(client: StreamsGroupClient) -> None:
    first, second = SimulatedMember(client, "holding-on", _IN), SimulatedMember(client, "holding-on", _IN)
    first.join()
    wait_until_stable([first])
    first.keeps_revoked_tasks = True
    second.join()
    for _ in range(10):
        first.step()
        second.step()


def use_state_stores(client: StreamsGroupClient) -> None:
    name = "stateful"
    client.configure_group(name, {"streams.num.standby.replicas": 1})
    store = [internal_topic(f"{name}-store-changelog", configs={"cleanup.policy": "compact"})]
    by_key = f"{name}-by-key-repartition"
    subtopologies = [
        subtopology(
            "0",
            source_topics=["in", "other"],
            repartition_sink_topics=[by_key],
            copartition_groups=[["in", "other"]],
            state_changelog_topics=store,
        ),
        subtopology("1", source_topics=["narrow"], repartition_source_topics=[internal_topic(by_key, 3)]),
    ]
    join_members(client, name, 2, topology(*subtopologies))


def mix_topology_epochs(client: StreamsGroupClient) -> None:
    """Join members with two topology epochs to a group whose id has characters of several alphabets."""
    name = 'mixed "ünï" 🎉'
    members = join_members(client, name, 1, topology(subtopology("0", source_topics=["in"]), epoch=2))
    stale = SimulatedMember(client, name, topology(subtopology("0", source_topics=["in"]), epoch=2), topology_epoch=1)
    with suppress(GroupError):
        stale.join()
    members[0].step()


def convert_classic_groups(client: StreamsGroupClient, server: str) -> None:
    """Convert a classic group to a streams group, and another one back; 4.1 rejects both."""
    with classic_member(server, "was-classic"):
        pass
    with suppress(GroupError):
        join_members(client, "was-classic", 1)
    for member in join_members(client, "is-classic", 1):
        member.leave()
    with suppress(KafkaError), classic_member(server, "is-classic"):
        pass


@contextmanager
def classic_member(server: str, group_id: str, topic: str = "in", polls: int = 50, **settings: Any) -> Iterator[None]:
    """Join a group with a consumer of the classic protocol; it leaves after the block."""
    consumer = KafkaConsumer(topic, bootstrap_servers=server, group_id=group_id, **settings)
    try:
        for _ in range(polls):
            consumer.poll(timeout_ms=100)
            if consumer.assignment():
                break
        yield
    finally:
        consumer.close()


if __name__ == "__main__":
    for release in sys.argv[1:] or VERSIONS:
        record(release, _HERE / f"{release}.jsonl.gz", print)

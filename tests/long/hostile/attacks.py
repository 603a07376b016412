"""The attacks, as data: a name, what it shows, and a function that plays it against a running bed.

A function returns when it has sent what it wanted to, or when `bed.ending` is set. To add an attack is to add an entry.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from kafka.errors import KafkaError

from offsets_decoder import encode
from streaming_app.kafka.protocol import GroupError
from streaming_app.sandbox.member import SimulatedMember, internal_topic, subtopology, topology
from tests.long.hostile import STORED, page_attacks
from tests.long.hostile.bed import Bed
from tests.long.hostile.requests import LARGE, join, random_id, raw_key, write_internal
from tests.support.encoded import Pair, group_records, metadata_record

UNKNOWN_TYPE = 99
_LONGEST_ID = 32_000  # a string of a request has 32,767 bytes at most


class Attack(NamedTuple):
    """One attack."""

    what: str
    """What a tenant does, in the table."""
    play: Callable[[Bed], None]
    is_fast: bool = False
    """`make test` plays it, too."""


# --- Requests of members ----------------------------------------------------------------------------------------------


def _backtracking_id(bed: Bed) -> None:
    with bed.attacker() as client:
        for number in range(20):
            id_ = "1_" * (_LONGEST_ID // 2 - number) + "!"
            join(client, id_, topic=f"gone-{number}")
            join(client, f"{id_}-left").leave()


def _large_tags(bed: Bed) -> None:
    tags = {f"tag-{number}": "x" * 30_000 for number in range(LARGE // 30_000)}
    with bed.attacker() as client:
        for _ in _until_end(bed, 149):
            join(client, "tags", client_tags=tags)


def _prefixed_groups(bed: Bed) -> None:
    _flood(bed, (f"!{number:04}" for number in range(1_000)))


def _random_groups(bed: Bed) -> None:
    chance = random.Random(1)  # noqa: S311 - no secret
    _flood(bed, (random_id(chance) for _ in range(1_000)))


def _stuck_groups(bed: Bed) -> None:
    _flood(bed, (f"!{number:04}" for number in range(1_000)), topic="gone")


def _flood(bed: Bed, ids: Iterator[str], topic: str = "orders-in") -> None:
    with bed.attacker() as client:
        for group_id, _ in zip(ids, _until_end(bed, 1_000), strict=False):
            join(client, group_id, topic=topic)


def _many_members(bed: Bed) -> None:
    with bed.attacker() as client:
        for _ in _until_end(bed, 1_500):
            join(client, "crowd")


def _epoch_bumps(bed: Bed) -> None:
    with bed.attacker() as client:
        member = join(client, "restless")
        for number in _until_end(bed, 3_000):
            member.rack_id = f"rack-{number}"
            member.join()


def _joins_and_leaves(bed: Bed) -> None:
    with bed.attacker() as client:
        for _ in _until_end(bed, 1_500):
            join(client, "revolving-door").leave()


def _created_and_deleted(bed: Bed) -> None:
    with bed.attacker() as client:
        for number in _until_end(bed, 500):
            group_id = f"brief-{number % 7}"
            join(client, group_id).leave()
            client.delete_group(group_id)


def _huge_topologies(bed: Bed) -> None:
    topics = [f"{number:05}-{'t' * 240}" for number in range(80)]
    with bed.attacker() as client:
        for number in _until_end(bed, 60):
            parts = [
                subtopology(
                    f"{part:03}",
                    source_topics=[f"{part:03}{name}"[:249] for name in topics[:30]],
                    state_changelog_topics=[
                        internal_topic(f"{part:03}-{number}-changelog", configs={"a": "x" * 2_000})
                    ],
                )
                for part in range(80)
            ]
            SimulatedMember(client, f"topology-{number}", topology(*parts)).join()


def _hostile_text(bed: Bed) -> None:
    texts = (
        STORED,
        "{{ .Labels.password }}${jndi:ldap://127.0.0.1/x}<img src=x onerror=alert(1)>@channel",
        '=cmd|" /C calc"!A0',
        "x' OR '1'='1'; DROP TABLE groups; --",
        "../../../../etc/passwd",
        "%s%n%x{0.__class__}\\",
        'a"} 1\nstreams_group_state{group="orders-0"',
    )
    with bed.attacker() as client:
        for text in texts:
            join(client, text[:300], topic="gone", rack_id=text, client_tags={text: text}, instance_id=text[:200])


def _long_ids(bed: Bed) -> None:
    chance = random.Random(2)  # noqa: S311 - no secret
    _flood(bed, (random_id(chance, 30_000) for _ in range(200)), topic="gone")


def _hostile_patterns(bed: Bed) -> None:
    patterns = ["(a+)+$", "(.*)*x", "(" * 400 + "a" + ")" * 400, "[a-z]{1,1000}" * 3, "(?i)(x+x+)+y"]
    with bed.attacker() as client:
        for number, pattern in enumerate(patterns * 4):
            described = topology(subtopology("0", source_topics=["gone"], source_topic_regex=[pattern]))
            _ignoring(SimulatedMember(client, f"pattern-{number}", described).join)


def _pushed_descriptions(bed: Bed) -> None:
    with bed.attacker() as client:
        member = join(client, "describes")
        for number in _until_end(bed, 150):
            node = {
                "name": f"{number}" + "n" * 20_000,
                "node_type": 1,
                "source_topics": [],
                "sink_topic": None,
                "stores": [],
                "successors": [],
            }
            described = {"subtopologies": [{"subtopology_id": "0", "nodes": [node]}], "global_stores": []}
            _ignoring(lambda described=described: member.push_description(description=described))


def _committed_offsets(bed: Bed) -> None:
    with bed.attacker() as client:
        client.create_topic("wide", 200)
        for number in _until_end(bed, 200):
            client.commit_offsets(f"commits-{number}", {("wide", partition): 0 for partition in range(200)})


# --- Records written into the topic, as a tenant may whose ACLs are too wide ------------------------------------------


def _unknown_records(bed: Bed) -> None:
    write_internal(bed.server, ((raw_key(UNKNOWN_TYPE, b"unknown"), b"x" * LARGE) for _ in range(300)))


def _records_that_cannot_be_folded(bed: Bed) -> None:
    """Each decodes, and the time that it holds is no time: the fold refuses it."""
    group = {"group_id": "poison"}
    good = list(group_records("poison", 2))

    def records() -> Iterator[Pair]:
        yield from good
        for number in range(4_000):
            yield encode(20, group, {"assignment_epoch": number, "assignment_timestamp": 2**62})
            yield metadata_record(group, number + 3)

    write_internal(bed.server, records())


def _large_records_that_cannot_be_folded(bed: Bed) -> None:
    group = {"group_id": "large-poison"}
    tags = [{"key": str(number), "value": "x" * 30_000} for number in range(20)]
    member = {"client_id": "c", "client_host": "/10.0.0.9", "process_id": "p", "client_tags": tags}

    def records() -> Iterator[Pair]:
        for number in range(150):
            yield encode(19, {**group, "member_id": f"m-{number}"}, member)
            yield encode(20, group, {"assignment_epoch": number, "assignment_timestamp": 2**62})

    write_internal(bed.server, records())


def _large_metadata(bed: Bed) -> None:
    def records() -> Iterator[Pair]:
        for number in range(200):
            key = {"group": f"metadata-{number}", "topic": "orders-in", "partition": 0}
            fields = {"offset": 1, "leader_epoch": 0, "metadata": "m" * 30_000, "commit_timestamp": 1}
            yield encode(1, key, fields)

    write_internal(bed.server, records())


def _malformed_keys(bed: Bed) -> None:
    """Keys of an unknown type, which brokers ignore: one of a known type stops the broker's own coordinator."""
    start = UNKNOWN_TYPE.to_bytes(2, "big")
    ends = (b"", b"\x7f", b"\x7f\xff", b"\xff\xff", b"\x00\x02\xff\xfe")
    write_internal(bed.server, ((start + ends[number % 5], b"?") for number in range(20_000)))


def _ids_that_are_no_text(bed: Bed) -> None:
    def records() -> Iterator[Pair]:
        for number in range(2_000):
            id_ = (b"\xff\xfe%d" % number, b"\xed\xa0\x80%d" % number, b"%d\x00" % number)[number % 3]
            yield raw_key(17, id_), metadata_record({"group_id": "g"}, 2)[1]

    write_internal(bed.server, records())


def _far_times(bed: Bed) -> None:
    for timestamp in (0, int(1000 * (time.time() + 3_000))):  # brokers accept an hour ahead
        records = (one for number in range(50) for one in group_records(f"time-{timestamp}-{number}", 2))
        write_internal(bed.server, records, timestamp_ms=timestamp)


def _one_large_group(bed: Bed) -> None:
    """Records of 100,000 members of one group."""

    def records() -> Iterator[Pair]:
        yield metadata_record({"group_id": "huge"}, 2, metadata_hash=1, validated_topology_epoch=0)
        for number in range(100_000):
            member = {"group_id": "huge", "member_id": f"member-{number:06}"}
            yield encode(19, member, {"client_id": "c" * 100, "client_host": "/10.0.0.9", "process_id": "p"})

    write_internal(bed.server, records())


def _many_events(bed: Bed) -> None:
    """200,000 operations of one group."""

    def records() -> Iterator[Pair]:
        for number in range(200_000):
            yield metadata_record({"group_id": "eventful"}, number + 2, metadata_hash=number)

    write_internal(bed.server, records())


def _until_end(bed: Bed, count: int) -> Iterator[int]:
    for number in range(count):
        if bed.ending.is_set():
            return
        yield number


def _ignoring(request: Callable[[], Any]) -> None:
    """Send a request that the broker may refuse."""
    with suppress(GroupError, KafkaError):
        request()


ATTACKS: dict[str, Attack] = {
    "backtracking-id": Attack("ids of 32 kB, made for a pattern that backtracks", _backtracking_id, is_fast=True),
    "large-tags": Attack("149 members of one group with 900 kB of client tags each", _large_tags),
    "prefixed-groups": Attack("1,000 groups whose ids begin with `!`", _prefixed_groups),
    "random-groups": Attack("1,000 groups with random ids", _random_groups),
    "stuck-groups": Attack("1,000 groups whose source topic is missing", _stuck_groups),
    "many-members": Attack("1,500 members join one group", _many_members),
    "epoch-bumps": Attack("one member rejoins 3,000 times, each time with another rack", _epoch_bumps),
    "joins-and-leaves": Attack("1,500 members join and leave one group", _joins_and_leaves),
    "created-and-deleted": Attack("groups are created and deleted 500 times", _created_and_deleted),
    "huge-topologies": Attack("60 groups with a topology of 750 kB each", _huge_topologies),
    "hostile-text": Attack(
        "escapes, templates, markup, SQL and forged lines in every text", _hostile_text, is_fast=True
    ),
    "long-ids": Attack("200 stuck groups with random ids of 30 kB", _long_ids),
    "hostile-patterns": Attack("patterns of source topics that take exponential time", _hostile_patterns, is_fast=True),
    "pushed-descriptions": Attack("150 descriptions that nobody asked for", _pushed_descriptions),
    "committed-offsets": Attack("200 groups commit 200 partitions each", _committed_offsets),
    "unknown-records": Attack("300 records of an unknown type, 900 kB each", _unknown_records),
    "unfoldable-records": Attack("4,000 records that decode and cannot be folded", _records_that_cannot_be_folded),
    "large-unfoldable-records": Attack("the same among records of 600 kB", _large_records_that_cannot_be_folded),
    "large-metadata": Attack("commits with 30 kB of metadata", _large_metadata),
    "malformed-keys": Attack("20,000 records whose keys are malformed", _malformed_keys, is_fast=True),
    "no-text-ids": Attack("2,000 groups whose ids are no valid UTF-8", _ids_that_are_no_text),
    "far-times": Attack("records of the year 1970, and of in an hour", _far_times),
    "one-large-group": Attack("100,000 members of one group, in records", _one_large_group),
    "many-events": Attack("200,000 epochs of one group, in records", _many_events),
    "idle-connections": Attack("1,000 idle connections to the page, and to the metrics", page_attacks.idle_connections),
    "slow-headers": Attack("300 requests to each, a byte of a header a second", page_attacks.slow_headers),
    "other-hosts": Attack("requests of an operator's browser on another site", page_attacks.other_hosts, is_fast=True),
    "large-queries": Attack("400 requests to the page with long and odd queries", page_attacks.large_queries),
    "many-tabs": Attack("700 pages that are open", page_attacks.many_tabs),
}
"""By name."""

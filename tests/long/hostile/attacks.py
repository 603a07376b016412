"""The attacks: a name, and a function that plays it against a running bed.

A function returns when it has sent what it wanted to, or when `bed.ending` is set. To add an attack is to add an entry.
"""

import random
from collections.abc import Iterator

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, internal_topic, subtopology, topology
from tests.long.bed import join
from tests.long.hostile import STORED
from tests.long.hostile.bed import AttackBed, Play
from tests.support.encode import encode
from tests.support.encoded import Pair, group_records, metadata_record
from tests.support.internal_topic import LARGE, raw_key, write_internal

UNKNOWN_TYPE = 99
_LONGEST_ID = 32_000  # a string of a request has 32,767 bytes at most


# --- Requests of members ----------------------------------------------------------------------------------------------


def _backtracking_id(bed: AttackBed) -> None:
    with StreamsGroupClient(bed.server) as client:
        for number in range(20):
            id_ = "1_" * (_LONGEST_ID // 2 - number) + "!"
            join(client, id_, topic=f"gone-{number}")
            join(client, f"{id_}-left").leave()


def _large_tags(bed: AttackBed) -> None:
    tags = {f"tag-{number}": "x" * 30_000 for number in range(LARGE // 30_000)}
    with StreamsGroupClient(bed.server) as client:
        for _ in _until_end(bed, 149):
            join(client, "tags", client_tags=tags)


def _stuck_groups(bed: AttackBed) -> None:
    chance = random.Random(1)  # noqa: S311 - no secret
    with StreamsGroupClient(bed.server) as client:
        for number in _until_end(bed, 1_000):
            join(client, chance.randbytes(6 if number % 5 else 15_000).hex(), topic="gone")


def _huge_topologies(bed: AttackBed) -> None:
    topics = [f"{number:05}-{'t' * 240}" for number in range(80)]
    with StreamsGroupClient(bed.server) as client:
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


def _hostile_text(bed: AttackBed) -> None:
    texts = (
        STORED,
        "{{ .Labels.password }}${jndi:ldap://127.0.0.1/x}<img src=x onerror=alert(1)>@channel",
        '=cmd|" /C calc"!A0',
        "x' OR '1'='1'; DROP TABLE groups; --",
        "../../../../etc/passwd",
        "%s%n%x{0.__class__}\\",
        'a"} 1\nstreams_group_state{group="orders-0"',
    )
    with StreamsGroupClient(bed.server) as client:
        for text in texts:
            join(client, text[:300], topic="gone", rack_id=text, client_tags={text: text}, instance_id=text[:200])


# --- Records written into the topic, as a tenant may whose ACLs are too wide ------------------------------------------


def _unknown_records(bed: AttackBed) -> None:
    write_internal(bed.server, ((raw_key(UNKNOWN_TYPE, b"unknown"), b"x" * LARGE) for _ in range(300)))


def _records_that_cannot_be_folded(bed: AttackBed) -> None:
    """Each decodes, and the time that it holds is no time: the fold refuses it. Members of 600 kB are among them."""
    group = {"group_id": "poison"}
    tags = [{"key": str(number), "value": "x" * 30_000} for number in range(20)]
    member = {"client_id": "c", "client_host": "/10.0.0.9", "process_id": "p", "client_tags": tags}

    def records() -> Iterator[Pair]:
        yield from group_records("poison", 2)
        for number in range(4_000):
            yield encode(20, group, {"assignment_epoch": number, "assignment_timestamp": 2**62})
            yield metadata_record(group, number + 3)
            if number % 30 == 0:
                yield encode(19, {**group, "member_id": f"m-{number}"}, member)

    write_internal(bed.server, records())


def _malformed_keys(bed: AttackBed) -> None:
    """Keys of an unknown type, which brokers ignore: one of a known type stops the broker's own coordinator."""
    start = UNKNOWN_TYPE.to_bytes(2, "big")
    ends = (b"", b"\x7f", b"\x7f\xff", b"\xff\xff", b"\x00\x02\xff\xfe")
    write_internal(bed.server, ((start + ends[number % 5], b"?") for number in range(20_000)))


def _ids_that_are_no_text(bed: AttackBed) -> None:
    def records() -> Iterator[Pair]:
        for number in range(2_000):
            id_ = (b"\xff\xfe%d" % number, b"\xed\xa0\x80%d" % number, b"%d\x00" % number)[number % 3]
            yield raw_key(17, id_), metadata_record({"group_id": "g"}, 2)[1]

    write_internal(bed.server, records())


def _one_large_group(bed: AttackBed) -> None:
    """Records of 100,000 members of one group."""

    def records() -> Iterator[Pair]:
        yield metadata_record({"group_id": "huge"}, 2, metadata_hash=1, validated_topology_epoch=0)
        for number in range(100_000):
            member = {"group_id": "huge", "member_id": f"member-{number:06}"}
            yield encode(19, member, {"client_id": "c" * 100, "client_host": "/10.0.0.9", "process_id": "p"})

    write_internal(bed.server, records())


def _until_end(bed: AttackBed, count: int) -> Iterator[int]:
    for number in range(count):
        if bed.ending.is_set():
            return
        yield number


ATTACKS: dict[str, Play] = {
    "backtracking-id": _backtracking_id,
    "large-tags": _large_tags,
    "stuck-groups": _stuck_groups,
    "huge-topologies": _huge_topologies,
    "hostile-text": _hostile_text,
    "unknown-records": _unknown_records,
    "unfoldable-records": _records_that_cannot_be_folded,
    "malformed-keys": _malformed_keys,
    "no-text-ids": _ids_that_are_no_text,
    "one-large-group": _one_large_group,
}
FAST = ("backtracking-id", "hostile-text", "malformed-keys")  # which `test_hostile` plays

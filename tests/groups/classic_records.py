"""Records of type 2 of Kafka Streams with the classic protocol: the bytes as clients of 4.4.0 write them, by hand."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from struct import pack
from typing import Any
from uuid import UUID

from streaming_app.groups.group import LogRecord
from tests.groups.records import at

NO_REBALANCE = (1 << 63) - 1
AT_ONCE = 0
KEY = {"group_id": "g"}
P1, P2, P3 = UUID(int=1), UUID(int=2), UUID(int=3)
Task = tuple[int, int]
Sources = Mapping[int, Iterable[str]]
SOURCES: Sources = {0: ["words"], 1: ["g-word-repartition", "letters"]}
"""Subtopology -> its source topics."""


def _text(text: str) -> bytes:
    return pack(">h", len(text.encode())) + text.encode()


def _bytes(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def subscription(
    process: UUID = P1,
    sums: Mapping[Task, int] | None = None,
    *,
    endpoint: str = "h:80",
    tags: Mapping[str, str] | None = None,
    error: int = 0,
) -> bytes:
    """A ConsumerProtocolSubscription of version 1 with a SubscriptionInfo of version 11."""
    of_sums = (pack(">iiqh", *task, offset, -1) for task, offset in (sums or {}).items())
    of_tags = (_bytes(name.encode()) + _bytes(value.encode()) for name, value in (tags or {}).items())
    info = pack(">ii", 11, 11) + process.bytes + _bytes(endpoint.encode())
    info += pack(">i", len(sums or {})) + b"".join(of_sums)
    info += pack(">bi", 0, error) + pack(">i", len(tags or {})) + b"".join(of_tags)
    return pack(">hi", 1, 1) + _text("words") + _bytes(info) + pack(">i", 0)


def assignment(
    active: Iterable[Task] = (),
    standby: Iterable[Task] = (),
    *,
    next_rebalance: int = NO_REBALANCE,
    error: int = 0,
    sources: Sources = SOURCES,
    version: int = 11,
) -> bytes:
    """A ConsumerProtocolAssignment of version 1 with an AssignmentInfo of version 6, which 2.5 writes, or 11."""
    has_names = version >= 10
    active, standby = [*active], [*standby]
    pairs = sorted((topic, task[1], task) for task in active for topic in sources[task[0]])
    topics = dict.fromkeys(topic for topic, *_ in pairs)
    by_topic = (
        _text(topic) + pack(f">i{len(own)}i", len(own), *own)
        for topic in topics
        for own in [[partition for one, partition, _ in pairs if one == topic]]
    )
    info = pack(">iii", version, 11, len(pairs)) + b"".join(
        pack(">ii", *task) + bytes(4 * has_names) for *_, task in pairs
    )
    info += pack(">i", len(standby))
    for task in standby:
        info += pack(">ii", *task) + bytes(4 * has_names) + pack(">i", len([*sources[task[0]]]))
        info += b"".join(_text(topic) + pack(">i", task[1]) for topic in sources[task[0]])
    info += pack(">iiii", 0, 0, 0, error) + (pack(">q", next_rebalance) if version >= 7 else b"")
    return pack(">hi", 1, len(topics)) + b"".join(by_topic) + _bytes(info)


def thread(
    member_id: str,
    told: bytes | None = None,
    assigned: bytes | None = None,
    *,
    instance: str | None = None,
    client_host: str = "/10.0.0.1",
) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "group_instance_id": instance,
        "client_id": f"g-{member_id}",
        "client_host": client_host,
        "rebalance_timeout": 300_000,
        "session_timeout": 45_000,
        "subscription": subscription() if told is None else told,
        "assignment": assignment() if assigned is None else assigned,
    }


def generation(number: int, *threads: dict[str, Any], entered: datetime | None = None) -> dict[str, Any]:
    """The value of a record 2; without members the group is Empty, and has no protocol."""
    entered = entered or at(number)
    return {
        "protocol_type": "consumer",
        "generation": number,
        "protocol": "stream" if threads else None,
        "leader": threads[0]["member_id"] if threads else None,
        "current_state_timestamp": round(entered.timestamp() * 1000),
        "members": [*threads],
    }


def records(*values: dict[str, Any] | None, first: int = 0, seconds: float = 0) -> list[LogRecord]:
    """A record of each value, a second apart."""
    return [
        LogRecord(first + i, at(seconds + first + i), 2, KEY if value else {}, value) for i, value in enumerate(values)
    ]

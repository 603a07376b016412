"""More for the sample: groups of other types, a second cluster, and who had which task in the past."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

Row = dict[str, Any]
CONSUMER, CONNECT, CLASSIC_STREAMS, SHARE, TOOL = (
    "order-mailer",
    "connect-warehouse-sink",
    "legacy-totals",
    "image-resizer",
    "offset-export",
)
HOSTILE_OTHER = "offsets <b>only</b>\u202e"
OTHER_CLUSTER = "eu-west"


def group_records(now: datetime) -> Iterator[Row]:
    numbers = iter(range(1_000))

    def record(group_id: str, record_type: int, minutes: float, **columns: Any) -> Row:
        at = now - timedelta(minutes=minutes)
        common = {"cluster": "default", "member_id": "", "deleted": False, "recorded_at": at, "source_partition": 0}
        return {**common, "group_id": group_id, "record_type": record_type, "last_offset": next(numbers), **columns}

    yield record(CONSUMER, 3, 9, epoch=12)
    yield record(CONSUMER, 6, 9, epoch=12)
    for number in range(3):
        who = {"client_id": f"mailer-{number}", "client_host": f"/10.0.3.{number}"}
        has = {"assignment": [{"topic_id": "id-of-mails", "partitions": [2 * number, 2 * number + 1]}]}
        yield record(CONSUMER, 5, 60, member_id=f"m{number}", group_members=[who])
        epochs = {"epoch": 12 if number else 11, "member_state": 0}
        yield record(CONSUMER, 8, 9, member_id=f"m{number}", group_members=[has], **epochs)
    yield record(CONNECT, 2, 300, protocol_type="connect", protocol="sessioned", epoch=4, member_count=3)
    agreed = {"protocol_type": "consumer", "protocol": "stream", "epoch": 9, "member_count": 2, "leader": "first"}
    reads = [{"topic": "<b>clicks</b>", "partitions": [0, 1]}]
    wants = {"assignment": reads, "subscription": ["<b>clicks</b>", "pages"]}
    both = [{"member_id": one, "client_id": f"app-{one}", **wants} for one in ("first", "second")]
    yield record(CLASSIC_STREAMS, 2, 90, group_members=both, **agreed)
    yield record(SHARE, 11, 30, epoch=2)
    yield record(SHARE, 10, 30, member_id="s")


def coordinator(now: datetime) -> Row:
    """The coordinator of all groups, which are in the only partition."""
    fact = {"kind": "coordinator", "subject": "__consumer_offsets-0", "name": "coordinator", "observed_at": now}
    return {**fact, "cluster": "default", "value": "b1.example:9092 (1)"}


def offset_commits(now: datetime, *, hostile: bool) -> Iterator[Row]:
    partitions = {CONSUMER: 6, CLASSIC_STREAMS: 4, TOOL: 1, **({HOSTILE_OTHER: 1} if hostile else {})}
    offset = 2_000
    for group_id, number in partitions.items():
        for partition in range(number):
            offset += 1
            common = {"cluster": "default", "source_partition": 0, "last_offset": offset, "recorded_at": now}
            yield {**common, "group_id": group_id, "topic": "mails", "partition": partition, "committed_offset": 7_000}


def lag(now: datetime) -> Iterator[Row]:
    for partition, behind in enumerate((0, 41, 7, 0, 0, 1_902)):
        ends = {"committed_offset": 7_000, "log_end_offset": 7_000 + behind, "lag": behind}
        seconds = {"lag_seconds": behind / 9, "lag_seconds_is_lower_bound": False, "offset_status": "OK"}
        common = {"cluster": "default", "group_id": CONSUMER, "topic": "mails", "partition": partition}
        yield {**common, **ends, **seconds, "observed_at": now}


def lag_history(now: datetime) -> Iterator[Row]:
    """Yield samples of the lag of a group of another type."""
    for minute in range(50):
        at = now - timedelta(minutes=50 - minute)
        common = {"cluster": "default", "group_id": CONSUMER, "topic": "mails", "partition": 5, "offset_status": "OK"}
        yield {**common, "lag": 40 * minute, "lag_seconds": 4.0 * minute, "observed_at": at}


def assignments() -> Iterator[tuple[float, str, str | None]]:
    """Yield when, which member, and its new tasks, as `group_events` has them."""
    tasks = [(sub, partition) for sub in range(4) for partition in range(4)]

    def shares(members: list[int]) -> Iterator[tuple[str, str]]:
        for place, number in enumerate(members):
            mine = ",".join(f"{sub}_{partition}" for sub, partition in tasks[place :: len(members)])
            others = [f"{sub}_{p}" for sub, p in tasks[(place + 1) % len(members) :: len(members)] if sub]
            yield f"orders-member-{number}", f"active {mine}; standby {','.join(others)}"

    for minutes, members in ((1_389, [0, 1, 2, 3]), (895, [0, 1, 2]), (605, [0, 1, 2, 3])):
        for member_id, text in shares(members):
            yield minutes, member_id, text

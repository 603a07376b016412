"""Records of groups as bytes, in the format of broker 4.4.0: for topics, batches and benchmarks."""

from collections.abc import Iterator
from typing import Any

from tests.support.encode import encode

FIRST_EPOCH = 2
"""The epoch of a group whose first member joins."""
Pair = tuple[bytes, bytes | None]


def metadata_record(key: dict[str, str], epoch: int, **fields: Any) -> Pair:
    """Return a record of type 17; `key` is `{"group_id": …}`. It has no configs unless `fields` has them."""
    return encode(17, key, {"epoch": epoch, "last_assignment_configs": [], **fields})


def group_records(group_id: str, epoch: int, members: int = 3, tasks: int = 4) -> Iterator[Pair]:
    """Yield the records of a group at an epoch: all for the first epoch, those of a rebalance for later epochs.

    Each member has so many active tasks of one subtopology.
    """
    group = {"group_id": group_id}
    ids = [{**group, "member_id": f"m-{group_id}-{number}"} for number in range(members)]
    assigned = [
        [{"subtopology_id": "0", "partitions": list(range(number * tasks, (number + 1) * tasks))}]
        for number in range(members)
    ]
    if epoch == FIRST_EPOCH:
        yield encode(23, group, {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["in"]}]})
        for member in ids:
            yield encode(19, member, {"client_id": "app", "client_host": "/10.0.0.1", "process_id": "p"})
    yield metadata_record(group, epoch, metadata_hash=1, validated_topology_epoch=0)
    for member, active in zip(ids, assigned, strict=True):
        yield encode(21, member, {"active_tasks": active})
    yield encode(20, group, {"assignment_epoch": epoch})
    settled = {"member_epoch": epoch, "previous_member_epoch": epoch - 1, "state": 1}
    for member, active in zip(ids, assigned, strict=True):
        yield encode(22, member, {**settled, "active_tasks": active})

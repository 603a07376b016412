"""Committed offsets as the coordinators have them: one OffsetFetch for many groups, errors kept by group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from kafka.errors import KafkaError
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from streaming_app.kafka.admin import Admin
from streaming_app.kafka.errors import error_name
from streaming_app.kafka.log_ends import TopicPartition, chunks

_GROUPS_PER_FIND = 1_000
_GROUPS_PER_FETCH = 100
_TIMEOUT_MS = 20_000
_FIND_VERSION, _FETCH_VERSION = 4, 8  # the first that take many groups: KIP-699, KIP-709; Kafka 3.0
_LAST_VERSION_WITH_NAMES = 9  # later ones name topics by id


class CommittedOffset(NamedTuple):
    """An offset and the leader epoch that was committed with it, None if there was none."""

    offset: int
    leader_epoch: int | None


class CommittedOffsets(NamedTuple):
    """By group: the offsets of every partition it has committed, or the name of the error."""

    offsets: dict[str, dict[TopicPartition, CommittedOffset]]
    errors: dict[str, str]


def fetch_committed_offsets(admin: Admin, group_ids: Iterable[str]) -> CommittedOffsets:
    """Return what the coordinators of these groups have; an aborted transaction's offsets are not in it.

    Raises KafkaError where no broker answers.
    """
    found = CommittedOffsets({}, {})
    coordinators: defaultdict[int, list[str]] = defaultdict(list)
    for ids in chunks(group_ids, _GROUPS_PER_FIND):
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=ids, min_version=_FIND_VERSION)
        for one in admin.send_to_any(find).coordinators:
            if one.error_code:
                found.errors[one.key] = error_name(one.error_code)
            else:
                coordinators[one.node_id].append(one.key)
    requests = [
        (node_id, chunk) for node_id, ids in coordinators.items() for chunk in chunks(sorted(ids), _GROUPS_PER_FETCH)
    ]
    answers = admin.send_all([(node_id, _request(ids)) for node_id, ids in requests], _TIMEOUT_MS)
    for (_, ids), answer in zip(requests, answers, strict=True):
        if isinstance(answer, KafkaError):
            found.errors.update(dict.fromkeys(ids, type(answer).__name__))
            continue
        for group in answer.groups:
            if group.error_code:
                found.errors[group.group_id] = error_name(group.error_code)
            else:
                found.offsets[group.group_id] = _offsets(group)
    return found


def _request(group_ids: list[str]) -> Any:  # noqa: ANN401 - kafka-python is untyped
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        groups=[group(group_id=group_id, topics=None) for group_id in group_ids],
        require_stable=False,
        min_version=_FETCH_VERSION,
        max_version=_LAST_VERSION_WITH_NAMES,
    )


def _offsets(group: Any) -> dict[TopicPartition, CommittedOffset]:  # noqa: ANN401 - kafka-python is untyped
    return {
        (topic.name, one.partition_index): CommittedOffset(
            one.committed_offset, one.committed_leader_epoch if one.committed_leader_epoch >= 0 else None
        )
        for topic in group.topics
        for one in topic.partitions
        if not one.error_code and one.committed_offset >= 0
    }

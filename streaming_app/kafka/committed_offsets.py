"""Committed offsets of many groups, as their coordinators return them (OffsetFetch)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from streaming_app.kafka.connection import ANSWER_MS, Admin
from streaming_app.kafka.protocol import GroupError, error_name
from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import Commit
from streaming_app.lag.partition_time import partition_time_ms

_GROUPS_PER_FETCH = 100
_FETCH_VERSION = 8  # the first version for many groups: KIP-709, Kafka 3.0
_LAST_VERSION_WITH_NAMES = 9  # later versions name topics by id


def fetch_committed_offsets(
    admin: Admin, group_ids: Iterable[str], timeout_ms: int = ANSWER_MS
) -> tuple[dict[str, dict[TopicPartition, Commit]], dict[str, str]]:
    """Return the committed offsets by group and partition from the coordinators; and by group, the name of an error.

    Offsets of aborted transactions are not returned. Raises KafkaError if no broker answers.
    """
    offsets: dict[str, dict[TopicPartition, Commit]] = {}
    errors: dict[str, str] = {}
    for ids, answer in admin.send_to_coordinators(group_ids, _fetch_request, _GROUPS_PER_FETCH, timeout_ms):
        if isinstance(answer, Exception):
            name = answer.name if isinstance(answer, GroupError) else type(answer).__name__
            errors.update(dict.fromkeys(ids, name))
            continue
        for group in answer.groups:
            if group.error_code:
                errors[group.group_id] = error_name(group.error_code)
            else:
                offsets[group.group_id] = _offsets(group)
    return offsets, errors


def _fetch_request(group_ids: list[str]) -> Any:  # noqa: ANN401 - kafka-python is untyped
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        groups=[group(group_id=group_id, topics=None) for group_id in group_ids],
        require_stable=False,
        min_version=_FETCH_VERSION,
        max_version=_LAST_VERSION_WITH_NAMES,
    )


def _offsets(group: Any) -> dict[TopicPartition, Commit]:  # noqa: ANN401 - kafka-python is untyped
    return {
        (topic.name, one.partition_index): Commit(
            one.committed_offset,
            leader_epoch=one.committed_leader_epoch if one.committed_leader_epoch >= 0 else None,
            partition_time=None if (time := partition_time_ms(one.metadata)) is None else time / 1_000,
        )
        for topic in group.topics
        for one in topic.partitions
        if not one.error_code and one.committed_offset >= 0
    }

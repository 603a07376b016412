"""Descriptions of many groups, where one that cannot be described keeps none of the others from being described."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from streaming_app.kafka import messages
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.errors import COORDINATOR_CODES, GroupError
from streaming_app.kafka.messages import Fields, build

_GROUPS_PER_REQUEST = 500
_FAILURES_IN_A_ROW = 3  # requests: then the brokers are away, and those that are left would only wait for time-outs
_ACCEPTABLE_LAG = "streams.acceptable.recovery.lag"
AUTHORIZATION_CODES = frozenset({29, 30})
"""TOPIC_AUTHORIZATION_FAILED, of a topic that the group uses, and GROUP_AUTHORIZATION_FAILED."""


@dataclass
class Descriptions:
    """What StreamsGroupDescribe returned."""

    groups: list[Fields] = field(default_factory=list)
    """Those that were described, in snake_case."""
    failures: dict[str, GroupError] = field(default_factory=dict)
    """The error of each group that was not; those of a request that failed as a whole are missing."""


def describe_each(client: StreamsGroupClient, group_ids: Sequence[str]) -> Descriptions:
    """Describe the groups, 500 a request to each coordinator. A request that fails as a whole is left out.

    Raises kafka-python's KafkaError, or GroupError, once three requests in a row have failed.
    """
    found, failed, left = Descriptions(), 0, iter(group_ids)
    while ids := list(islice(left, _GROUPS_PER_REQUEST)):
        try:
            responses = client.admin.send_to_coordinators(
                ids,
                lambda some: build(messages.StreamsGroupDescribeRequest, {"group_ids": some}),
                _GROUPS_PER_REQUEST,
            )
        except (KafkaError, GroupError):
            client.admin.forget_coordinators(ids)
            failed += 1
            if failed == _FAILURES_IN_A_ROW or len(group_ids) <= _GROUPS_PER_REQUEST:
                raise
            continue
        failed = 0
        for response in responses:
            _add(found, response["groups"])
        client.admin.forget_coordinators(
            group_id for group_id in ids if group_id in found.failures and _has_moved(found.failures[group_id])
        )
    return found


def _add(found: Descriptions, groups: Iterable[Fields]) -> None:
    for group in groups:
        if group["error_code"]:
            found.failures[group["group_id"]] = GroupError(group["error_code"], group["error_message"])
        else:
            found.groups.append(group)


def _has_moved(error: GroupError) -> bool:
    return error.code in COORDINATOR_CODES


def acceptable_lags(client: StreamsGroupClient, group_ids: Iterable[str]) -> dict[str, int]:
    """Return the config `streams.acceptable.recovery.lag` of each group; those whose configs are denied are missing.

    Brokers before Kafka 4.4 have no such config. Raises kafka-python's KafkaError.
    """
    resources = [ConfigResource(ConfigResourceType.GROUP, one, {_ACCEPTABLE_LAG: None}) for one in group_ids]
    if not resources:
        return {}
    described = client.admin.describe_configs(resources, config_filter="all")
    values = (
        (group_id, configs.get(_ACCEPTABLE_LAG, {}).get("value"))
        for group_id, configs in described.get(ConfigResourceType.GROUP.name.lower(), {}).items()
    )
    return {group_id: int(value) for group_id, value in values if value and value.isdecimal()}

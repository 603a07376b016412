"""Requests to group coordinators, and the other requests that commands and tests send."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaConnectionError, KafkaError, RetriableError, UnknownBrokerIdError
from kafka.protocol.admin import DeleteGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.consumer.group import OffsetCommitRequest
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from streaming_app.chunks import chunks
from streaming_app.kafka import protocol
from streaming_app.kafka.connection import ANSWER_MS, Admin
from streaming_app.kafka.protocol import (
    COORDINATOR_CODES,
    UNKNOWN_SERVER_ERROR,
    Fields,
    GroupError,
    build,
    error_name,
    raise_for_code,
)
from streaming_app.kafka.topic_reader import LATEST, read_offsets
from streaming_app.lag.ends import TopicPartition
from streaming_app.lag.model import Commit
from streaming_app.lag.partition_time import partition_time_ms

RETRY_SECONDS = 30.0
_DESCRIBE_BATCH_SIZE = 100
_LAST_COMMIT_VERSION_WITH_NAMES = 9  # OffsetCommit v10 names topics by id
_GROUPS_PER_REQUEST, _GROUPS_PER_FETCH = 500, 100
_FETCH_VERSION = 8  # of OffsetFetch: the first version for many groups, KIP-709, Kafka 3.0
_LAST_FETCH_VERSION_WITH_NAMES = 9
_FAILURES_IN_A_ROW = 3  # requests: then the brokers are away, and further requests would only time out


class StreamsGroupClient(Admin):
    """A client that also sends the requests of any number of groups and members.

    While a coordinator moves, loads or restarts, each call below retries for up to 30 s. After that, and for every
    other error, it raises GroupError, or kafka-python's KafkaError when the cluster does not answer.
    """

    def heartbeat(self, fields: Mapping[str, Any]) -> Fields:
        """Send a StreamsGroupHeartbeat with these fields (snake_case), and return the fields of the response."""
        request = build(protocol.StreamsGroupHeartbeatRequest, fields)
        return self.send_to_group(fields["group_id"], request)

    def push_description(self, group_id: str, member_id: str, epoch: int, description: Mapping[str, Any]) -> None:
        """Send a StreamsGroupTopologyDescriptionUpdate, whether the coordinator asked for it or not."""
        member = {"group_id": group_id, "member_id": member_id}
        fields = {**member, "topology_epoch": epoch, "topology_description": description}
        self.send_to_group(group_id, build(protocol.StreamsGroupTopologyDescriptionUpdateRequest, fields))

    def describe(self, group_ids: Collection[str], *, include_topology_description: bool = False) -> list[Fields]:
        """Return each group as in StreamsGroupDescribe, in the order given; one request describes up to 100 groups.

        A group that is not a streams group has `error_code` 69 (GROUP_ID_NOT_FOUND) and an empty state. One that may
        not be described, or whose coordinator did not answer, has the code of that error. Raises it if none answered.
        """
        requested = list(dict.fromkeys(group_ids))
        fields = {"include_topology_description": True} if include_topology_description else {}
        described: dict[str, Fields] = {}

        def describe_missing() -> None:
            no_answer: Exception | None = None
            for ids, response in self.send_to_coordinators(
                [group_id for group_id in requested if group_id not in described],
                lambda ids: build(protocol.StreamsGroupDescribeRequest, {"group_ids": ids, **fields}),
                _DESCRIBE_BATCH_SIZE,
            ):
                if isinstance(response, KafkaError):
                    no_answer = response
                    continue
                is_denied = isinstance(response, GroupError)  # by the broker that was asked for the coordinator
                for group in [_failed(ids[0], response)] if is_denied else response.to_dict()["groups"]:
                    if group["error_code"] in COORDINATOR_CODES:
                        no_answer = GroupError(group["error_code"], group["error_message"])
                    else:
                        described[group["group_id"]] = group
            if no_answer:
                raise no_answer

        try:
            self._retry(describe_missing)
        except (GroupError, KafkaError) as error:
            if not described:
                raise
            described |= {one: _failed(one, error) for one in requested if one not in described}
        return [described[group_id] for group_id in group_ids]

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the end offsets by partition, none if there is no such topic. Raises GroupError if it is hidden."""
        _, (ends,) = self._retry(lambda: read_offsets(self, topic, LATEST))
        return dict(ends)

    def streams_groups(self) -> dict[str, str]:
        """Return the state of every streams group of the cluster by group id, as the brokers write it."""
        groups = self._retry(self.list_groups)  # kafka-python's filter by type does not know streams groups
        return {group["group_id"]: group["group_state"] for group in groups if group["group_type"] == "streams"}

    def delete_group(self, group_id: str) -> None:
        """Delete an empty group with its offsets."""
        request = build(DeleteGroupsRequest, {"groups_names": [group_id]})
        self._retry(lambda: raise_for_code(self._send_once(group_id, request)["results"][0]["error_code"]))

    def configure_group(self, group_id: str, configs: Mapping[str, object]) -> None:
        """Set configs of a group, such as `streams.num.standby.replicas`; the group need not exist yet."""
        settings = {name: str(value) for name, value in configs.items()}
        resource = ConfigResource(ConfigResourceType.GROUP, group_id, settings)
        self._retry(lambda: self.alter_configs([resource], raise_on_unknown=False))

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic with one replica and wait until it has leaders."""
        topic = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        self.create_topics({name: topic}, wait_for_metadata=True)

    def commit_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], member_id: str = "", member_epoch: int = -1
    ) -> None:
        """Commit offsets by (topic, partition) as a member, or, without a member id, for an empty group."""
        topics: dict[str, list[Fields]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append({"partition_index": partition, "committed_offset": offset})
        fields = {
            "group_id": group_id,
            "member_id": member_id,
            "generation_id_or_member_epoch": member_epoch,
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        }
        request = build(OffsetCommitRequest, fields, max_version=_LAST_COMMIT_VERSION_WITH_NAMES)

        def commit() -> None:
            for topic in self._send_once(group_id, request)["topics"]:
                for partition in topic["partitions"]:  # its errors also say if the coordinator has changed
                    raise_for_code(partition["error_code"])

        self._retry(commit)

    def _send_once(self, group_id: str, request: Any) -> Fields:  # noqa: ANN401 - kafka-python is untyped
        ((_, response),) = self.send_to_coordinators([group_id], lambda _: request, 1)
        if isinstance(response, Exception):
            raise response
        fields: Fields = response.to_dict()
        return fields

    def send_to_group(self, group_id: str, request: Any) -> Fields:  # noqa: ANN401 - kafka-python is untyped
        """Send a request to the coordinator of a group, and return the fields of the response."""

        def send() -> Fields:
            response = self._send_once(group_id, request)
            raise_for_code(response.get("error_code", 0), response.get("error_message"))
            return response

        response: Fields = self._retry(send)
        return response

    def _retry(self, call: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        wait, stop = wait_exponential(0.05, max=1), stop_after_delay(RETRY_SECONDS)
        return Retrying(retry=retry_if_exception(_is_retriable), stop=stop, wait=wait, reraise=True)(call)


def _failed(group_id: str, error: GroupError | KafkaError) -> Fields:
    if isinstance(error, GroupError):
        message = "" if error.message == group_id else error.message
        return {"group_id": group_id, "error_code": error.code, "error_message": message}
    code = getattr(error, "errno", None)
    return {
        "group_id": group_id,
        "error_code": code or UNKNOWN_SERVER_ERROR,
        "error_message": " ".join(map(str, error.args)),
    }


def _is_retriable(error: BaseException) -> bool:
    if isinstance(error, GroupError):
        return error.code in COORDINATOR_CODES
    # While a broker starts, a partition without a leader has the broker id -1.
    return isinstance(error, (RetriableError, KafkaConnectionError, UnknownBrokerIdError))


def describe_each(client: StreamsGroupClient, group_ids: Sequence[str]) -> list[Fields]:
    """Describe the groups, 500 per request to each coordinator: one failure does not prevent the others.

    Returns groups as `StreamsGroupClient.describe` does; groups of a request that fails as a whole are missing. Raises
    kafka-python's KafkaError if three requests in a row fail, or if the only one fails.
    """
    found, failed = list[Fields](), 0
    for some in chunks(group_ids, _GROUPS_PER_REQUEST):
        for ids, response in client.send_to_coordinators(
            some, lambda ids: build(protocol.StreamsGroupDescribeRequest, {"group_ids": ids}), _GROUPS_PER_REQUEST
        ):
            if isinstance(response, GroupError):
                found.append(_failed(ids[0], response))
            elif isinstance(response, KafkaError):
                failed += 1
                if failed == _FAILURES_IN_A_ROW or len(ids) == len(group_ids):
                    raise response
            else:
                failed = 0
                found += response.to_dict()["groups"]
    return found


def fetch_committed_offsets(
    admin: Admin, group_ids: Iterable[str], timeout_ms: int = ANSWER_MS
) -> tuple[dict[str, dict[TopicPartition, Commit]], dict[str, str]]:
    """Return committed offsets by group and partition, or a group's error. Raises KafkaError if no broker answers."""
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
        max_version=_LAST_FETCH_VERSION_WITH_NAMES,
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

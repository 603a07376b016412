"""Sends the requests of the streams group protocol to the coordinators, and what else it takes to set a scene.

What kafka-python's own admin client can do is left to it: see `StreamsGroupClient.admin`.
"""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaConnectionError, KafkaError, RetriableError
from kafka.protocol.consumer import OffsetSpec
from kafka.protocol.consumer.group import OffsetCommitRequest
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential
from typing_extensions import Self

from streaming_app.protocol import messages
from streaming_app.protocol.admin import Admin
from streaming_app.protocol.errors import COORDINATOR_CODES, TOPIC_AUTHORIZATION_FAILED, GroupError, raise_for_code
from streaming_app.protocol.messages import Fields, build

RETRY_SECONDS = 30.0
_DESCRIBED_AT_ONCE = 100
_LAST_COMMIT_BY_NAME = 9  # OffsetCommit v10 names topics by id


class StreamsGroupClient:
    """One connection to a cluster for any number of groups and members; safe to use from several threads.

    While a coordinator moves, loads or restarts, each call retries for up to 30 s. Then, and for every other refusal,
    it raises GroupError; kafka-python's KafkaError when the cluster does not answer.
    """

    def __init__(self, bootstrap_server: str, **security: Any) -> None:  # noqa: ANN401 - kafka-python's own settings
        """Connect. `security` are kafka-python's settings, such as `security_protocol` and `sasl_mechanism`."""
        self.admin = Admin(bootstrap_servers=bootstrap_server, client_id="streams-groups", **security)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; members stay in their groups until their session times out."""
        self.admin.close()

    def heartbeat(self, fields: Mapping[str, Any]) -> Fields:
        """Send a StreamsGroupHeartbeat with these fields (snake_case) and return the response's."""
        request = build(messages.StreamsGroupHeartbeatRequest, fields)
        return self._ask(fields["group_id"], request)

    def push_description(self, group_id: str, member_id: str, epoch: int, description: Mapping[str, Any]) -> None:
        """Send a StreamsGroupTopologyDescriptionUpdate, whether the coordinator asked for it or not."""
        fields = {
            "group_id": group_id,
            "member_id": member_id,
            "topology_epoch": epoch,
            "topology_description": description,
        }
        self._ask(group_id, build(messages.StreamsGroupTopologyDescriptionUpdateRequest, fields))

    def describe(self, group_ids: Iterable[str], *, include_topology_description: bool = False) -> list[Fields]:
        """Return each group as StreamsGroupDescribe gives it, in this order; a hundred groups go in one request.

        A group that is no streams group has `error_code` 69 (GROUP_ID_NOT_FOUND) and an empty state.
        """
        wanted = list(group_ids)
        fields = {"include_topology_description": True} if include_topology_description else {}
        answered: dict[str, Fields] = {}

        def once() -> None:
            refusal: GroupError | None = None
            missing = [group_id for group_id in dict.fromkeys(wanted) if group_id not in answered]
            for answer in self.admin.ask_coordinators(
                missing,
                lambda ids: build(messages.StreamsGroupDescribeRequest, {"group_ids": ids, **fields}),
                _DESCRIBED_AT_ONCE,
            ):
                for group in answer["groups"]:
                    if group["error_code"] in COORDINATOR_CODES:
                        refusal = GroupError(group["error_code"], group["error_message"])
                    else:
                        answered[group["group_id"]] = group
            if refusal:
                raise refusal

        self._retry(once, wanted)
        return [answered[group_id] for group_id in wanted]

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the end of each partition of a topic, aborted and open transactions included."""
        described = self._retry(lambda: self.admin.describe_topics([topic]))[0]
        if described["error_code"] == TOPIC_AUTHORIZATION_FAILED:  # else it would look as if there were none
            raise GroupError(TOPIC_AUTHORIZATION_FAILED, topic)
        ends = {
            TopicPartition(topic, partition["partition_index"]): OffsetSpec.LATEST
            for partition in described["partitions"]
        }
        found = self._retry(lambda: self.admin.list_partition_offsets(ends)) if ends else {}
        return {where.partition: offset.offset for where, offset in found.items()}

    def list_groups(self) -> dict[str, str]:
        """Return the state of every streams group on the cluster, as the brokers spell it."""
        listed = self._retry(self.admin.list_groups)  # kafka-python's filter by type does not know streams groups
        return {group["group_id"]: group["group_state"] for group in listed if group["group_type"] == "streams"}

    def delete_group(self, group_id: str) -> None:
        """Delete an empty group with its offsets."""
        answer = self._retry(lambda: self.admin.delete_group(group_id))
        raise_for_code(answer)

    def configure_group(self, group_id: str, configs: Mapping[str, object]) -> None:
        """Set configs of a group, such as `streams.num.standby.replicas`; it need not exist yet."""
        settings = {name: str(value) for name, value in configs.items()}
        resource = ConfigResource(ConfigResourceType.GROUP, group_id, settings)
        self._retry(lambda: self.admin.alter_configs([resource], raise_on_unknown=False))

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic with one replica and wait until it has leaders."""
        topic = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        self.admin.create_topics({name: topic}, wait_for_metadata=True)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([name])

    def commit_offsets(
        self, group_id: str, offsets: Mapping[tuple[str, int], int], member_id: str = "", member_epoch: int = -1
    ) -> None:
        """Commit offsets by (topic, partition) as a member, or, without one, for an empty group."""
        topics: dict[str, list[Fields]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
            )
        fields = {
            "group_id": group_id,
            "member_id": member_id,
            "generation_id_or_member_epoch": member_epoch,
            "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
        }
        request = build(OffsetCommitRequest, fields)
        request._max_version = _LAST_COMMIT_BY_NAME  # noqa: SLF001 - how kafka-python itself caps a version
        answer = self._ask(group_id, request)
        for topic in answer["topics"]:
            for partition in topic["partitions"]:
                raise_for_code(partition["error_code"])

    def _ask(self, group_id: str, request: Any) -> Fields:  # noqa: ANN401 - kafka-python is untyped
        def once() -> Fields:
            answer = self.admin.ask_coordinator(group_id, request)
            for part in [answer, *answer.get("groups", [])]:
                code = part.get("error_code", 0)
                if code and (part is answer or code in COORDINATOR_CODES):
                    raise GroupError(code, part.get("error_message"))
            return answer

        answered: Fields = self._retry(once, [group_id])
        return answered

    def _retry(self, call: Any, group_ids: Iterable[str] = ()) -> Any:  # noqa: ANN401 - kafka-python is untyped
        def again(error: BaseException) -> bool:
            if not _passes(error):
                return False
            self.admin.forget_coordinators(group_ids)
            return True

        waits = wait_exponential(0.05, max=1)
        ends = stop_after_delay(RETRY_SECONDS)
        return Retrying(retry=retry_if_exception(again), stop=ends, wait=waits, reraise=True)(call)


def _passes(error: BaseException) -> bool:
    """Tell whether the same request may do in a moment."""
    if isinstance(error, GroupError):
        return error.code in COORDINATOR_CODES
    return isinstance(error, (RetriableError, KafkaConnectionError)) and isinstance(error, KafkaError)

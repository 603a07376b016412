"""A simulated application of Kafka Streams with the classic protocol: one process with one thread, which has all tasks.

It sends the requests of a consumer whose assignor is that of Kafka Streams, with the bytes that clients of 4.4 write
(`schemas/embedded`). As the leader of its group it also assigns the tasks: those of one stateful subtopology.
"""

import uuid
from collections.abc import Sequence
from struct import pack

from kafka.protocol.consumer.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields, build

_TYPE, _ASSIGNOR = {"protocol_type": "consumer"}, "stream"
_LAST_JOIN_WITHOUT_ID = 3  # from JoinGroup v4 on, a member first asks for its id
_VERSION = 11  # of SubscriptionInfo and AssignmentInfo
_RUNS, _NO_REBALANCE = -2, (1 << 63) - 1  # the sum of the offsets of an active task, and the time of the next rebalance


class ClassicMember:
    """The thread. All requests raise GroupError if the coordinator rejects them."""

    def __init__(self, client: StreamsGroupClient, group_id: str, topic: str, tasks: Sequence[int]) -> None:
        """Prepare, for tasks with these partitions of the topic; nothing is sent before `join()`."""
        self.client, self.group_id, self.member_id, self.generation = client, group_id, "", -1
        self._topic, self._tasks, self._process = topic, tasks, uuid.uuid4()

    def join(self) -> None:
        """Join as a new member, and assign all tasks to this thread."""
        protocol = {"name": _ASSIGNOR, "metadata": self._subscription()}
        fields = {**_TYPE, "protocols": [protocol], "session_timeout_ms": 45_000, "rebalance_timeout_ms": 300_000}
        request = build(JoinGroupRequest, {**fields, "group_id": self.group_id}, max_version=_LAST_JOIN_WITHOUT_ID)
        joined = self.client.send_to_group(self.group_id, request)
        self.member_id, self.generation = joined["member_id"], joined["generation_id"]
        assigned = {"member_id": self.member_id, "assignment": self._assignment()}
        fields = {**self._own(), **_TYPE, "protocol_name": _ASSIGNOR, "assignments": [assigned]}
        self.client.send_to_group(self.group_id, build(SyncGroupRequest, fields))

    def step(self) -> None:
        """Send a heartbeat."""
        self.client.send_to_group(self.group_id, build(HeartbeatRequest, self._own()))

    def _own(self) -> Fields:
        return {"group_id": self.group_id, "generation_id": self.generation, "member_id": self.member_id}

    def _subscription(self) -> bytes:
        """Return a ConsumerProtocolSubscription with SubscriptionInfo."""
        sums = b"".join(pack(">iiqh", 0, partition, _RUNS, -1) for partition in self._tasks)
        info = pack(">ii", _VERSION, _VERSION) + self._process.bytes + _sized(">i", f"{self.group_id}-0.example:7070")
        info += pack(">i", len(self._tasks)) + sums + pack(">bii", 0, 0, 0)
        return pack(">hi", 1, 1) + _sized(">h", self._topic) + _sized(">i", info) + pack(">i", 0)

    def _assignment(self) -> bytes:
        """Return a ConsumerProtocolAssignment with AssignmentInfo."""
        count, active = len(self._tasks), b"".join(pack(">iii", 0, partition, 0) for partition in self._tasks)
        info = pack(">iii", _VERSION, _VERSION, count) + active + pack(">iiiiiq", 0, 0, 0, 0, 0, _NO_REBALANCE)
        partitions = pack(f">i{count}i", count, *self._tasks)
        return pack(">hi", 1, 1) + _sized(">h", self._topic) + partitions + _sized(">i", info)


def _sized(length: str, content: str | bytes) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return pack(length, len(data)) + data

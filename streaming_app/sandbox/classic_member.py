"""A simulated application of Kafka Streams with the classic protocol: one process with one thread, which has all tasks.

It sends the requests of a consumer whose assignor is that of Kafka Streams, with the bytes that clients of 4.4 write
(`schemas/embedded`). As the leader of its group it also assigns the tasks: those of one stateful subtopology.
"""

import uuid
from collections.abc import Sequence
from struct import pack

from kafka.protocol.consumer.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields, GroupError, build

_LAST_JOIN_WITHOUT_ID = 3  # from JoinGroup v4 on, a member first asks for its id
_VERSION = 11  # of SubscriptionInfo and AssignmentInfo
_RUNS, _NO_REBALANCE = -2, (1 << 63) - 1  # the sum of the offsets of an active task, and the time of the next rebalance
_CONSUMER, _ASSIGNOR = "consumer", "stream"  # the type of the protocol, and its name
_UNKNOWN = "UNKNOWN_MEMBER_ID"


class ClassicMember:
    """The thread. All requests raise GroupError if the coordinator rejects them."""

    def __init__(self, client: StreamsGroupClient, group_id: str, topic: str, partitions: Sequence[int]) -> None:
        """Prepare; nothing is sent before `join()`."""
        self.client, self.group_id, self.member_id, self.generation = client, group_id, "", -1
        self._topic, self._tasks = topic, partitions
        self._process, self._endpoint = uuid.uuid4(), f"{group_id}-0.example:7070"

    def join(self) -> None:
        """Join, and assign all tasks to this thread."""
        protocol = {"name": _ASSIGNOR, "metadata": self._subscription()}
        fields = {"protocol_type": _CONSUMER, "protocols": [protocol], "session_timeout_ms": 45_000}
        fields |= {"rebalance_timeout_ms": 300_000, "group_id": self.group_id, "member_id": self.member_id}
        joined = self._send(build(JoinGroupRequest, fields, max_version=_LAST_JOIN_WITHOUT_ID))
        self.member_id, self.generation = joined["member_id"], joined["generation_id"]
        assigned = {"member_id": self.member_id, "assignment": self._assignment()}
        agreed = {"protocol_type": _CONSUMER, "protocol_name": _ASSIGNOR}
        self._send(build(SyncGroupRequest, {**self._own(), **agreed, "assignments": [assigned]}))

    def step(self) -> None:
        """Send a heartbeat."""
        try:
            self._send(build(HeartbeatRequest, self._own()))
        except GroupError as error:
            if error.name == _UNKNOWN:
                self.member_id = ""
            raise

    def _own(self) -> Fields:
        return {"group_id": self.group_id, "generation_id": self.generation, "member_id": self.member_id}

    def _send(self, request: object) -> Fields:
        return self.client.send_to_group(self.group_id, request)

    def _subscription(self) -> bytes:
        """Return a ConsumerProtocolSubscription with SubscriptionInfo."""
        sums = b"".join(pack(">iiqh", 0, partition, _RUNS, -1) for partition in self._tasks)
        info = pack(">ii", _VERSION, _VERSION) + self._process.bytes + _bytes(self._endpoint.encode())
        info += pack(">i", len(self._tasks)) + sums + pack(">bii", 0, 0, 0)
        return pack(">hi", 1, 1) + _text(self._topic) + _bytes(info) + pack(">i", 0)

    def _assignment(self) -> bytes:
        """Return a ConsumerProtocolAssignment with AssignmentInfo."""
        active = b"".join(pack(">iii", 0, partition, 0) for partition in self._tasks)
        info = pack(">iii", _VERSION, _VERSION, len(self._tasks)) + active
        info += pack(">iiiiiq", 0, 0, 0, 0, 0, _NO_REBALANCE)
        count = len(self._tasks)
        return pack(">hi", 1, 1) + _text(self._topic) + pack(f">i{count}i", count, *self._tasks) + _bytes(info)


def _text(text: str) -> bytes:
    return pack(">h", len(text.encode())) + text.encode()


def _bytes(data: bytes) -> bytes:
    return pack(">i", len(data)) + data

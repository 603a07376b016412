"""Members of consumer and share groups, which kafka-python does not know: real requests, as defined in Kafka's jar."""

import importlib
import sys
import uuid
import zipfile
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from kafka.protocol.api_message import ApiMessage, ApiMessageData

from streaming_app.jvm.jars import find_jars, kafka_jars
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import build
from tests.support.waiting import wait_until

_PACKAGE = "messages_of_kafkas_jar"


def request_class(name: str) -> Any:
    """Return the class of a request, such as ConsumerGroupHeartbeat; that of its response is registered, too."""
    return _classes(name)[1]


@cache  # of both: kafka-python keeps only a weak reference to the class of a response
def _classes(name: str) -> list[Any]:
    package = _extract()
    return [ApiMessageData(f"{name}{kind}", (ApiMessage,), {}, load_json=package) for kind in ("Response", "Request")]


@cache
def _extract() -> Any:
    jar = next(jar for jar in find_jars(kafka_jars()) if "kafka-clients-" in jar.name)
    directory = Path(mkdtemp())
    (directory / _PACKAGE).mkdir()
    (directory / _PACKAGE / "__init__.py").touch()
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and "GroupHeartbeat" in name:
                (directory / _PACKAGE / Path(name).name).write_bytes(archive.read(name))
    sys.path.append(str(directory))
    return importlib.import_module(_PACKAGE)


class GroupMember:
    """One member of a consumer or share group (`kind`), which reads one topic."""

    def __init__(self, client: StreamsGroupClient, kind: str, group_id: str, topic: str) -> None:
        self._client, self._kind, self._group_id, self._topic = client, kind, group_id, topic
        self.member_id, self.epoch, self.assignment = str(uuid.uuid4()), 0, None

    def join(self) -> None:
        self._heartbeat(subscribed_topic_names=[self._topic])
        assert wait_until(lambda: bool(self.assignment or self._heartbeat())), "there was no assignment"
        self._heartbeat()

    def leave(self) -> None:
        self.epoch = -1
        self._heartbeat()

    def _heartbeat(self, **fields: Any) -> None:
        if self._kind == "Consumer":
            owned = [] if self.assignment is None else self.assignment
            fields = {"rebalance_timeout_ms": 5000, "topic_partitions": owned, **fields}
        fields = {"group_id": self._group_id, "member_id": self.member_id, "member_epoch": self.epoch, **fields}
        response = self._client.send_to_group(
            self._group_id, build(request_class(f"{self._kind}GroupHeartbeat"), fields)
        )
        self.epoch = response["member_epoch"]
        if response["assignment"]:
            self.assignment = response["assignment"]["topic_partitions"]

"""The connection to a cluster: one way to make it, its time-outs, and requests to brokers and coordinators.

kafka-python's admin client sends them. Its errors arrive as exceptions, so what it logs is not printed.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, RequestTimedOutError
from kafka.future import Future
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.metadata.find_coordinator import CoordinatorType

from streaming_app.chunks import chunks
from streaming_app.kafka.first_answer import BrokerGoneError, make_client
from streaming_app.kafka.protocol import GroupError
from streaming_app.kafka.security import security_settings

CONNECT_SECONDS = 10.0
"""How long a command or a service waits for the first connection."""
IMPATIENT_CONNECT_SECONDS = 5.0
"""The same, where a batch of the stream or a reader of the page waits meanwhile."""
ANSWER_MS = 20_000
"""How long brokers may take to answer a request about many partitions or groups."""
_LOOK_SECONDS = 1.5  # without an answer, until the other brokers are asked whether the broker is still there
_REQUESTS_AT_A_TIME = 10_000  # of a broker: kafka-python fails what is more than five, and does not let it wait
_GROUPS_PER_FIND = 1_000
_FIND_VERSION = 4  # the first that takes many groups: KIP-699, Kafka 3.0


def connect(properties: Mapping[str, str], seconds: float | None = None) -> "Admin":
    """Connect to the brokers of Kafka client properties, with `bootstrap.servers`; give up after `seconds`, or 10.

    Raises KafkaError if none answers, SecurityError for properties that kafka-python does not support.
    """
    return Admin(**connection_settings(properties, seconds))


class KeptConnection:
    """A connection that the first request makes, and the first one after `close`; for one thread at a time."""

    def __init__(self, make: Callable[[], "Admin"]) -> None:
        """Prepare; nothing is connected yet."""
        self._make = make
        self._admin: Admin | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has been made, and not closed since."""
        return self._admin is not None

    def get(self) -> "Admin":
        """Return the connection. Raises as what makes it."""
        if self._admin is None:
            self._admin = self._make()
        return self._admin

    def close(self) -> None:
        """Close the connection, if there is one."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def connection_settings(properties: Mapping[str, str], seconds: float | None = None) -> dict[str, Any]:
    """Return the settings of kafka-python for the same. Raises SecurityError."""
    return {
        "bootstrap_servers": properties["bootstrap.servers"].split(","),
        "bootstrap_timeout_ms": int(1000 * (CONNECT_SECONDS if seconds is None else seconds)),
        **security_settings(properties),
    }


def silence_log() -> None:
    """Let kafka-python print nothing."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


class Admin(KafkaAdminClient):  # type: ignore[misc] # kafka-python is untyped
    """An admin client of one cluster. Raises kafka-python's KafkaError where its parent does."""

    def __init__(self, **configs: Any) -> None:  # noqa: ANN401 - kafka-python's own settings
        """Connect. When the cluster does not answer, close the thread and the socket that kafka-python leaves open."""
        silence_log()
        self._addresses: dict[int, str] = {}
        try:
            super().__init__(
                client_id="streams-groups",
                kafka_client=make_client,
                max_in_flight_requests_per_connection=_REQUESTS_AT_A_TIME,
                **configs,
            )
        except BaseException:
            if hasattr(self, "_client"):
                self._metrics.close()
                self._client.close()
            raise

    def find_coordinators(self, group_ids: Iterable[str]) -> Iterator[Any]:
        """Yield what a broker says of each group: `key`, and `node_id`, `host` and `port`, or an `error_code`."""
        for ids in chunks(group_ids, _GROUPS_PER_FIND):
            request = FindCoordinatorRequest(
                key_type=CoordinatorType.GROUP.value, coordinator_keys=ids, min_version=_FIND_VERSION
            )
            yield from self.send_to_any(request).coordinators

    def send_to_coordinators(
        self, group_ids: Iterable[str], build_request: Callable[[list[str]], Any], most: int
    ) -> list[tuple[list[str], Any]]:
        """Send the coordinators requests for at most so many groups; return the groups of each with the response.

        Instead of it GroupError where the coordinator is not known, and KafkaError where it does not answer.
        """
        found: list[tuple[list[str], Any]] = []
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        for one in self.find_coordinators(group_ids):
            if one.error_code:
                found.append(([one.key], GroupError(one.error_code, one.key)))
            else:
                by_node[one.node_id].append(one.key)
        sent = [(node_id, some) for node_id, ids in by_node.items() for some in chunks(ids, most)]
        answers = self.send_all([(node_id, build_request(ids)) for node_id, ids in sent], ANSWER_MS)
        return found + [(ids, answer) for (_, ids), answer in zip(sent, answers, strict=True)]

    def broker_ids(self) -> list[int]:
        """Return the ids of the brokers that are known, those that are away included."""
        return sorted(broker.node_id for broker in self._manager.cluster.brokers())

    def send_to_any(self, request: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        """Send a request that any broker answers, and return the response."""

        async def send() -> Any:  # noqa: ANN401 - the same
            return await self._manager.send(request)

        return self._manager.run(send)

    def send_all(self, requests: Sequence[tuple[int, Any]], timeout_ms: int) -> list[Any]:
        """Send each request to the broker of that id, all before the first response; return responses in order.

        The entry of a request that failed is its KafkaError. A broker that the others do not count to the cluster any
        more is not waited for.
        """

        async def send() -> list[Any]:
            if any(self._manager.cluster.broker_metadata(node_id) is None for node_id, _ in requests):
                await self._read_brokers()  # a broker joined
            deadline = time.monotonic() + timeout_ms / 1000
            sent = [self._begin(request, node_id, timeout_ms) for node_id, request in requests]
            return [
                await self._answer(one, node_id, deadline) for one, (node_id, _) in zip(sent, requests, strict=True)
            ]

        return self._manager.run(send)  # type: ignore[no-any-return] # kafka-python is untyped

    def _begin(self, request: Any, node_id: int, timeout_ms: int) -> Future:  # noqa: ANN401 - the same
        try:
            return self._manager.send(request, node_id, timeout_ms)
        except KafkaError as error:
            return Future().failure(error)

    async def _answer(self, sent: Future, node_id: int, deadline: float) -> Any:  # noqa: ANN401 - the same
        """Return the response of a broker, or the KafkaError; wait until the deadline at most."""
        while not sent.is_done and (left := deadline - time.monotonic()) > 0:
            with suppress(KafkaError):
                await self._manager.wait_for(sent, 1000 * min(left, _LOOK_SECONDS))
            if not sent.is_done and node_id not in await self._read_brokers():
                return BrokerGoneError(f"broker {node_id} is fenced")
        if not sent.is_done:
            return RequestTimedOutError(f"no answer of broker {node_id}")
        return sent.exception or sent.value

    def alive_brokers(self) -> frozenset[int]:
        """Return the ids of the brokers that the cluster counts as its own. Raises KafkaError if none answers."""
        return self._manager.run(self._read_brokers)  # type: ignore[no-any-return] # kafka-python is untyped

    async def _read_brokers(self) -> frozenset[int]:
        response = await self._manager.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        self._manager.cluster.update_metadata(response)
        for one in response.brokers:
            self._addresses[one.node_id] = f"{one.host}:{one.port}"
        return frozenset(one.node_id for one in response.brokers)

    def broker_name(self, node_id: int) -> str:
        """Return `broker 2 (host:port)`, as a line names a broker; without an address that was never known."""
        known = self._manager.cluster.broker_metadata(node_id)
        address = f"{known.host}:{known.port}" if known else self._addresses.get(node_id)
        return f"broker {node_id}" + (f" ({address})" if address else "")

"""The connection to a cluster: one way to make it, its time-outs, and requests to brokers and coordinators.

kafka-python's admin client sends them. Its errors arrive as exceptions, so what it logs is not printed.

A broker that is paused, or whose machine is gone, accepts what is sent to it and answers nothing. kafka-python chooses
one broker and waits for it alone. Here the next one is tried after a moment, or at once when one fails. So time-outs of
several brokers do not add up.
"""

import copy
import logging
import random
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeClusterRequest, DescribeConfigsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.metadata.find_coordinator import CoordinatorType

from streaming_app.chunks import chunks
from streaming_app.kafka.protocol import GroupError
from streaming_app.kafka.security import security_settings

CONNECT_SECONDS = 10.0
"""How long a command or a service waits for the first connection."""
IMPATIENT_CONNECT_SECONDS = 5.0
"""The same, where a batch of the stream or a reader of the page waits meanwhile."""
ANSWER_MS = 20_000
"""How long brokers may take to answer a request about many partitions or groups."""
_READS = (MetadataRequest, FindCoordinatorRequest, DescribeClusterRequest, DescribeConfigsRequest)  # of any broker
_NEXT_SECONDS = 1.0  # without an answer, until the next broker is asked, too
_LOGIN_SECONDS = 3.0  # of one of several servers, until the next one is tried: more in the next round
_PAUSE_SECONDS = 0.1  # between two attempts to connect
_LOOK_SECONDS = 1.5  # without an answer, until the other brokers are asked whether the broker is still there
_REQUESTS_AT_A_TIME = 10_000  # of a broker: kafka-python fails what is more than five, and does not let it wait
_GROUPS_PER_FIND = 1_000
_FIND_VERSION = 4  # the first that takes many groups: KIP-699, Kafka 3.0


def connect(properties: Mapping[str, str], seconds: float | None = None) -> "Admin":
    """Connect to the brokers of Kafka client properties, with `bootstrap.servers`; give up after `seconds`, or 10.

    Raises KafkaError if none answers, SecurityError for properties that kafka-python does not support.
    """
    return open_admin(**connection_settings(properties, seconds))


def open_admin(
    bootstrap_servers: str | Sequence[str],
    bootstrap_timeout_ms: float = 30_000,
    **settings: Any,  # noqa: ANN401 - kafka-python's own
) -> "Admin":
    """Connect to the first of these servers that answers in time. Raises KafkaError if none does."""
    names = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else bootstrap_servers
    servers = [name.strip() for name in names if name.strip()]
    random.shuffle(servers)
    began = time.monotonic()
    while True:
        server, elapsed = servers[0], time.monotonic() - began
        left = max(0.0, bootstrap_timeout_ms / 1000 - elapsed)
        patience = left if len(servers) == 1 else min(left, max(_LOGIN_SECONDS, elapsed))
        try:
            if len(servers) > 1:  # one whose machine or process is gone is known at once
                host, _, port = server.rpartition(":")
                socket.create_connection((host.strip("[]"), port), min(patience, _NEXT_SECONDS)).close()
            return Admin(bootstrap_servers=[server], bootstrap_timeout_ms=1000 * patience, **settings)
        except (KafkaError, OSError, UnicodeError) as error:
            if len(servers) == 1 or time.monotonic() - began >= bootstrap_timeout_ms / 1000:
                raise error if isinstance(error, KafkaError) else KafkaConnectionError(f"{server}: {error}") from None
        servers = [*servers[1:], server]
        time.sleep(_PAUSE_SECONDS)


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


class BrokerGoneError(KafkaConnectionError):  # type: ignore[misc] # kafka-python is untyped
    """The other brokers do not count a broker to the cluster any more: it stopped, or lost its connection to them."""


class _Connections(KafkaConnectionManager):  # type: ignore[misc] # kafka-python is untyped
    """The connections of one client."""

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: float | None = None) -> Future:  # noqa: ANN401 - the same
        """Send a request to a broker. Without `node_id`, one that only reads goes to the first that answers."""
        if node_id is None and isinstance(request, _READS):
            return self.call_soon(self._first_answer, request, request_timeout_ms)
        return self._begin(request, node_id, request_timeout_ms)

    def _begin(self, request: Any, node_id: Any, timeout_ms: float | None) -> Future:  # noqa: ANN401 - the same
        try:
            return super().send(request, node_id, timeout_ms)
        except KafkaError as error:
            return Future().failure(error)

    async def _first_answer(self, request: Any, timeout_ms: float | None) -> Any:  # noqa: ANN401 - the same
        nodes, sent = self._nodes_to_ask() or [None], list[Future]()
        while True:
            if nodes:
                sent.append(self._begin(copy.copy(request), nodes.pop(0), timeout_ms))
            newest = next((one for one in reversed(sent) if not one.is_done), sent[-1])
            with suppress(Exception):  # sockets, TLS, logins: another one may answer
                await self.wait_for(newest, 1000 * _NEXT_SECONDS)
            if answered := next((one for one in sent if one.succeeded()), None):
                return answered.value
            if not nodes and all(one.is_done for one in sent):
                raise sent[-1].exception

    def _nodes_to_ask(self) -> list[Any]:
        """Return the brokers that are not known to be away, the one with the fewest requests first."""
        best = self.least_loaded_node()
        others = [one.node_id for one in self.cluster.brokers() if one.node_id != best]
        random.shuffle(others)
        ready = [node for node in others if self.connection_delay(node) <= 0]
        return ready if best is None else [best, *ready]


class Admin(KafkaAdminClient):  # type: ignore[misc] # kafka-python is untyped
    """An admin client of one cluster. Raises kafka-python's KafkaError where its parent does."""

    def __init__(self, **configs: Any) -> None:  # noqa: ANN401 - kafka-python's own settings
        """Connect. When the cluster does not answer, close the thread and the socket that kafka-python leaves open."""
        silence_log()
        self._addresses: dict[int, str] = {}
        self._opened: KafkaNetClient | None = None
        try:
            super().__init__(
                client_id="streams-groups",
                kafka_client=self._open,
                max_in_flight_requests_per_connection=_REQUESTS_AT_A_TIME,
                **configs,
            )
        except BaseException:
            if self._opened is not None:
                self._opened.close()
            raise

    def _open(self, **configs: Any) -> KafkaNetClient:  # noqa: ANN401 - the same
        """Return what the parent sends its requests with."""
        network = NetworkSelector(**configs)
        self._connections = _Connections(network, **configs)
        self._opened = KafkaNetClient(network, self._connections, **configs)
        return self._opened

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
        return sorted(broker.node_id for broker in self._connections.cluster.brokers())

    def send_to_any(self, request: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        """Send a request that any broker answers, and return the response."""
        return self._connections.run(self._connections.send, request)

    def send_all(self, requests: Sequence[tuple[int, Any]], timeout_ms: int) -> list[Any]:
        """Send each request to the broker of that id, all before the first response; return responses in order.

        The entry of a request that failed is its KafkaError. A broker that the others do not count to the cluster any
        more is not waited for.
        """
        connections = self._connections

        async def send() -> list[Any]:
            if any(connections.cluster.broker_metadata(node_id) is None for node_id, _ in requests):
                await self._read_brokers()  # a broker joined
            deadline = time.monotonic() + timeout_ms / 1000
            sent = [(connections.send(request, node_id, timeout_ms), node_id) for node_id, request in requests]
            return [await self._answer(one, node_id, deadline) for one, node_id in sent]

        return connections.run(send)  # type: ignore[no-any-return] # kafka-python is untyped

    async def _answer(self, sent: Future, node_id: int, deadline: float) -> Any:  # noqa: ANN401 - the same
        """Return the response of a broker, or the KafkaError; wait until the deadline at most."""
        while not sent.is_done and (left := deadline - time.monotonic()) > 0:
            with suppress(KafkaError):
                await self._connections.wait_for(sent, 1000 * min(left, _LOOK_SECONDS))
            if not sent.is_done and node_id not in await self._read_brokers():
                return BrokerGoneError(f"broker {node_id} is fenced")
        if not sent.is_done:
            return RequestTimedOutError(f"no answer of broker {node_id}")
        return sent.exception or sent.value

    def alive_brokers(self) -> frozenset[int]:
        """Return the ids of the brokers that the cluster counts as its own. Raises KafkaError if none answers."""
        return self._connections.run(self._read_brokers)  # type: ignore[no-any-return] # kafka-python is untyped

    async def _read_brokers(self) -> frozenset[int]:
        response = await self._connections.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        self._connections.cluster.update_metadata(response)
        for one in response.brokers:
            self._addresses[one.node_id] = f"{one.host}:{one.port}"
        return frozenset(one.node_id for one in response.brokers)

    def broker_name(self, node_id: int) -> str:
        """Return `broker 2 (host:port)`, as a line names a broker; without an address that was never known."""
        known = self._connections.cluster.broker_metadata(node_id)
        address = f"{known.host}:{known.port}" if known else self._addresses.get(node_id)
        return f"broker {node_id}" + (f" ({address})" if address else "")

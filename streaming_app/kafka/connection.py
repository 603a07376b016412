"""The connection to a cluster: how it is made, its time-outs, and requests to brokers and coordinators.

kafka-python's admin client sends the requests. Its errors arrive as exceptions, so its log is not printed.

A paused broker, or one whose machine is gone, accepts requests and does not answer. kafka-python chooses one broker and
waits for it alone. This module tries the next broker after a moment, or at once when one fails. So time-outs of several
brokers do not add up.
"""

import copy
import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeClusterRequest, DescribeConfigsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.metadata.find_coordinator import CoordinatorType
from typing_extensions import Self

from streaming_app.chunks import chunks
from streaming_app.errors import UserError
from streaming_app.kafka.protocol import GroupError
from streaming_app.kafka.security import security_settings

A = TypeVar("A", bound="Admin")

CONNECT_SECONDS = 10.0
"""How long a command or a service waits for the first connection."""
ANSWER_MS = 20_000
"""How long brokers may take to answer a request about many partitions or groups."""
_READS = (MetadataRequest, FindCoordinatorRequest, DescribeClusterRequest, DescribeConfigsRequest)  # any broker answers
_NEXT_SECONDS = 1.0  # without an answer, until the next broker is also asked
_PAUSE_SECONDS = 0.1  # if no server has answered, until they are tried again; doubled each time
_LOOK_SECONDS = 1.5  # without an answer, until the other brokers are asked whether this one is still there
_REQUESTS_AT_A_TIME = 10_000  # per broker: kafka-python's default is five, and it fails further requests at once
_WORN_SECONDS = 60.0
_GROUPS_PER_FIND = 1_000
_FIND_VERSION = 4  # the first version for many groups: KIP-699, Kafka 3.0


class SharedConnection(Generic[A]):
    """A connection that any number of threads use: the first use makes it, and the first one after a failure again.

    A connection that has failed is closed when nobody uses it any more: other users' requests go on. A new connection
    reads certificates, tokens and the passwords of config providers again: they may have been renewed.
    """

    def __init__(self, properties: Mapping[str, str], kind: "type[A]", **settings: Any) -> None:  # noqa: ANN401 - kafka-python's
        """Prepare; nothing is connected yet. `properties` are Kafka client properties, `settings` are of `Admin.of`."""
        self.properties = properties
        self._kind, self._settings, self._lock = kind, settings, threading.Lock()
        self._newest: A | None = None
        self._is_closed = False
        self._users: list[A] = []  # the connection of each use

    @contextmanager
    def use(self) -> "Iterator[A]":
        """Give the connection. An error that is not an answer counts as its failure. Raises as `Admin.of`."""
        with self._lock:
            used = self._newest = self._newest or self._kind.of(self.properties, **self._settings)
            self._users.append(used)
        try:
            yield used
        except (GroupError, UserError):
            raise
        except BaseException:
            self.failed(used)
            raise
        finally:
            if used.is_worn:
                self.failed(used)
            with self._lock:
                self._users.remove(used)
            self._close_unused(used)

    def failed(self, used: "A") -> None:
        """Note that this connection has failed: the next use makes a new one."""
        with self._lock:
            self._newest = None if self._newest is used else self._newest

    def close(self) -> None:
        """Close the connection, or let the last one that uses it do so. A later use makes one for itself."""
        self._is_closed = True
        if (newest := self._newest) is not None:
            self.failed(newest)
            self._close_unused(newest)

    def _close_unused(self, one: "A") -> None:
        if self._is_closed:
            self.failed(one)
        if one is not self._newest and one not in self._users:
            with suppress(Exception):  # kafka-python raises several kinds
                one.close()


def connection_settings(properties: Mapping[str, str], seconds: float | None = None) -> dict[str, Any]:
    """Return the settings of kafka-python for these properties. Raises SecurityError."""
    return {
        "bootstrap_servers": [one.strip() for one in properties["bootstrap.servers"].split(",") if one.strip()],
        "bootstrap_timeout_ms": int(1000 * (CONNECT_SECONDS if seconds is None else seconds)),
        **security_settings(properties),
    }


def silence_log() -> None:
    """Let kafka-python print nothing."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


class BrokerGoneError(KafkaConnectionError):  # type: ignore[misc] # kafka-python is untyped
    """The other brokers no longer have this broker in the cluster: it stopped, or lost its connection to them."""


class _Connections(KafkaConnectionManager):  # type: ignore[misc] # kafka-python is untyped
    has_failed = False
    """Whether a connection to one of the brokers failed."""

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: float | None = None) -> Future:  # noqa: ANN401 - the same
        """Send a request to a broker. Without `node_id`, a read-only request goes to the first broker that answers."""
        if node_id is None and isinstance(request, _READS):
            return self.call_soon(self._first_answer, request, request_timeout_ms)
        return self._begin(request, node_id, request_timeout_ms)

    async def _connect(self, node: Any, conn: Any, **named: Any) -> None:  # noqa: ANN401 - the same
        """Connect to a broker. The parent class never uses newer versions of requests than the first broker had."""
        conn.broker_version_data = None  # brokers are upgraded while a client lives
        await super()._connect(node, conn, **named)
        self.has_failed |= not (conn.connected or self.cluster.is_bootstrap(node.node_id))

    def _begin(self, request: Any, node_id: Any, timeout_ms: float | None) -> Future:  # noqa: ANN401 - the same
        try:
            return super().send(request, node_id, timeout_ms)
        except KafkaError as error:
            return Future().failure(error)

    async def _do_bootstrap(self, deadline: float | None) -> bool:
        """Get the brokers from the first server that answers; the parent class waits for one until the deadline."""
        brokers = self.cluster.bootstrap_brokers()
        random.shuffle(brokers)
        servers = [one.node_id for one in brokers]

        def left_ms() -> float | None:
            return None if deadline is None else max(0.0, 1000 * (deadline - time.monotonic()))

        def connect(server: Any) -> Future:  # noqa: ANN401 - the same
            return self.call_soon(self._get_brokers_from, server, left_ms())

        pause = _PAUSE_SECONDS
        while True:
            try:
                await self.wait_for(self.call_soon(self._first, list(servers), connect), left_ms())
                break
            except KafkaError as error:  # the error of the last server
                if not error.retriable or self.closed or left_ms() == 0:
                    raise
            await self._net.sleep(pause)
            pause = min(2 * pause, _NEXT_SECONDS)
            for server in servers:
                self.reset_backoff(server)
        for server in servers:
            self.close(server)
        self.cluster.start_refresh_loop()
        return True

    async def _get_brokers_from(self, server: Any, timeout_ms: float | None) -> None:  # noqa: ANN401 - the same
        try:
            await self.get_connection(server, timeout_ms, refresh_metadata_on_err=False)
            await self.cluster.refresh_metadata(server)
        except KafkaError:
            raise
        except Exception as error:  # of sockets, TLS, names and tokens
            raise KafkaConnectionError(str(error)) from error
        if not self.cluster.brokers():
            raise KafkaConnectionError("it knows no broker yet")

    async def _first_answer(self, request: Any, timeout_ms: float | None) -> Any:  # noqa: ANN401 - the same
        return await self._first(
            self._nodes_to_ask() or [None], lambda node: self._begin(copy.copy(request), node, timeout_ms)
        )

    async def _first(self, nodes: list[Any], send: Callable[[Any], Future]) -> Any:  # noqa: ANN401 - the same
        """Send to one node after the other, a moment apart or when one fails, and return the first answer."""
        sent = list[Future]()
        while True:
            if nodes:
                sent.append(send(nodes.pop(0)))
            newest = next((one for one in reversed(sent) if not one.is_done), sent[-1])
            with suppress(Exception):  # sockets, TLS, logins: another one may answer
                await self.wait_for(newest, 1000 * _NEXT_SECONDS)
            if answered := next((one for one in sent if one.succeeded()), None):
                return answered.value
            if not nodes and all(one.is_done for one in sent):
                raise sent[-1].exception

    def _nodes_to_ask(self) -> list[Any]:
        """Return the brokers that are not known to be away, fewest open requests first."""
        best = self.least_loaded_node()
        others = [one.node_id for one in self.cluster.brokers() if one.node_id != best]
        random.shuffle(others)
        ready = [node for node in others if self.connection_delay(node) <= 0]
        return ready if best is None else [best, *ready]


class Admin(KafkaAdminClient):  # type: ignore[misc] # kafka-python is untyped
    """A client of one cluster for any number of threads. Raises kafka-python's KafkaError where its parent does."""

    def __init__(self, bootstrap_servers: str | Sequence[str], **configs: Any) -> None:  # noqa: ANN401 - kafka-python's own settings
        """Connect. When the cluster does not answer, close the thread and the socket that kafka-python leaves open."""
        silence_log()
        self._addresses: dict[int, str] = {}
        self._made_at = time.monotonic()
        self._opened: KafkaNetClient | None = None
        try:
            super().__init__(
                bootstrap_servers=bootstrap_servers,
                client_id="streams-groups",
                kafka_client=self._open,
                max_in_flight_requests_per_connection=_REQUESTS_AT_A_TIME,
                **configs,
            )
        except BaseException:
            if self._opened is not None:
                self._opened.close()
            raise

    @classmethod
    def of(cls, properties: Mapping[str, str], seconds: float | None = None, **settings: Any) -> Self:  # noqa: ANN401 - the same
        """Connect within `seconds`, by default 10. Raises KafkaError if no broker answers, SecurityError."""
        return cls(**connection_settings(properties, seconds), **settings)

    def _open(self, **configs: Any) -> KafkaNetClient:  # noqa: ANN401 - the same
        network = NetworkSelector(**configs)
        self._connections = _Connections(network, **configs)
        self._opened = KafkaNetClient(network, self._connections, **configs)
        return self._opened

    def find_coordinators(self, group_ids: Iterable[str]) -> Iterator[Any]:
        """Yield a broker's answer for each group: `key`, and `node_id`, `host` and `port`, or an `error_code`."""
        for ids in chunks(group_ids, _GROUPS_PER_FIND):
            request = FindCoordinatorRequest(
                key_type=CoordinatorType.GROUP.value, coordinator_keys=ids, min_version=_FIND_VERSION
            )
            yield from self.send_to_any(request).coordinators

    def send_to_coordinators(
        self,
        group_ids: Iterable[str],
        build_request: Callable[[list[str]], Any],
        most: int,
        timeout_ms: int = ANSWER_MS,
    ) -> list[tuple[list[str], Any]]:
        """Send requests for at most `most` groups each to the coordinators; return the groups and response of each.

        The response is a GroupError if the coordinator is not known, and a KafkaError if it does not answer.
        """
        found: list[tuple[list[str], Any]] = []
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        for one in self.find_coordinators(group_ids):
            if one.error_code:
                found.append(([one.key], GroupError(one.error_code, one.key)))
            else:
                by_node[one.node_id].append(one.key)
        sent = [(node_id, some) for node_id, ids in by_node.items() for some in chunks(ids, most)]
        answers = self.send_all([(node_id, build_request(ids)) for node_id, ids in sent], timeout_ms)
        return found + [(ids, answer) for (_, ids), answer in zip(sent, answers, strict=True)]

    @property
    def is_worn(self) -> bool:
        """Whether a connection to a broker failed and the client is older than a minute: another one may be let in."""
        return self._connections.has_failed and time.monotonic() - self._made_at > _WORN_SECONDS

    def broker_ids(self) -> list[int]:
        """Return the ids of all known brokers, including brokers that are away."""
        return sorted(broker.node_id for broker in self._connections.cluster.brokers())

    def send_to_any(self, request: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
        """Send a request that any broker can answer, and return the response."""
        return self._connections.run(self._connections.send, request)

    def send_all(self, requests: Sequence[tuple[int, Any]], timeout_ms: int) -> list[Any]:
        """Send each request to the broker with that id, all before the first response; return responses in order.

        A request that failed has a KafkaError there. A broker that is no longer in the cluster is not waited for.
        """
        connections = self._connections

        async def send() -> list[Any]:
            if any(connections.cluster.broker_metadata(node_id) is None for node_id, _ in requests):
                await self._read_brokers()  # it may be a new broker
            deadline = time.monotonic() + timeout_ms / 1000
            sent = [(connections.send(request, node_id, timeout_ms), node_id) for node_id, request in requests]
            return [await self._answer(one, node_id, deadline) for one, node_id in sent]

        return connections.run(send)  # type: ignore[no-any-return] # kafka-python is untyped

    async def _answer(self, sent: Future, node_id: int, deadline: float) -> Any:  # noqa: ANN401 - the same
        """Return the response of a broker, or a KafkaError; wait at most until the deadline."""
        while not sent.is_done and (left := deadline - time.monotonic()) > 0:
            with suppress(KafkaError):
                await self._connections.wait_for(sent, 1000 * min(left, _LOOK_SECONDS))
            if not sent.is_done and node_id not in await self._read_brokers():
                return BrokerGoneError(f"broker {node_id} is fenced")
        if not sent.is_done:
            return RequestTimedOutError(f"no answer of broker {node_id}")
        return sent.exception or sent.value

    def alive_brokers(self) -> frozenset[int]:
        """Return the ids of the brokers that are in the cluster now. Raises KafkaError if none answers."""
        return self._connections.run(self._read_brokers)  # type: ignore[no-any-return] # kafka-python is untyped

    async def _read_brokers(self) -> frozenset[int]:
        response = await self._connections.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        self._connections.cluster.update_metadata(response)
        for one in response.brokers:
            self._addresses[one.node_id] = f"{one.host}:{one.port}"
        return frozenset(one.node_id for one in response.brokers)

    def address_of(self, node_id: int) -> str | None:
        """Return the `host:port` of a broker; None if it was never known."""
        known = self._connections.cluster.broker_metadata(node_id)
        return f"{known.host}:{known.port}" if known else self._addresses.get(node_id)

    def broker_name(self, node_id: int) -> str:
        """Return `broker 2 (host:port)`, the name of a broker in lines; without the address if it was never known."""
        address = self.address_of(node_id)
        return f"broker {node_id}" + (f" ({address})" if address else "")

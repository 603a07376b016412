"""Requests that any broker answers, and the first connection: the next broker is tried while one does not answer.

A broker that is paused, or whose machine is gone, accepts what is sent to it and answers nothing. kafka-python chooses
one broker and waits for it alone, at the start for all the time that it has. Here the next one is tried after a moment,
or at once when one fails, and the first answer counts. So time-outs of several brokers do not add up.
"""

from __future__ import annotations

import copy
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kafka.errors import IncompatibleBrokerVersion, KafkaConnectionError, KafkaTimeoutError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

_READS = (
    MetadataRequest,
    FindCoordinatorRequest,
    DescribeClusterRequest,
)  # the same of any broker
_NEXT_SECONDS = 1.0


class BrokerConnections(KafkaConnectionManager):  # type: ignore[misc] # kafka-python is untyped
    """The connections of one client."""

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: float | None = None) -> Future:  # noqa: ANN401 - the same
        """Send a request to a broker. Without `node_id`, one that only reads goes to the first that answers."""
        if node_id is not None or not isinstance(request, _READS):
            return super().send(request, node_id, request_timeout_ms)
        nodes = self._nodes_to_ask()
        send = super().send
        return self._first([partial(send, copy.copy(request), node, request_timeout_ms) for node in nodes or [None]])

    def _nodes_to_ask(self) -> list[Any]:
        """Return the brokers that are not known to be away, the one with the fewest requests first."""
        best = self.least_loaded_node()
        others = [one.node_id for one in self.cluster.brokers() if one.node_id != best]
        random.shuffle(others)
        ready = [node for node in others if self.connection_delay(node) <= 0]
        return ready if best is None else [best, *ready]

    async def _do_bootstrap(self, deadline: float | None) -> bool:
        """Connect to the first bootstrap server that answers. Raises KafkaTimeoutError if none does by the deadline."""
        servers = self.cluster.bootstrap_brokers()
        if len(servers) == 1 or deadline is None:
            return bool(await super()._do_bootstrap(deadline))
        random.shuffle(servers)
        nodes = [server.node_id for server in servers]
        try:
            await self._first([partial(self.call_soon, self._bootstrap_from, node, deadline) for node in nodes])
        finally:
            for node in nodes:
                if (connection := self._conns.pop(node, None)) is not None:
                    connection.close()
        self.cluster.start_refresh_loop()
        return True

    async def _bootstrap_from(self, node: Any, deadline: float) -> None:  # noqa: ANN401 - kafka-python is untyped
        """Ask one server for the brokers, again and again until one of the servers has answered."""
        while not self.closed and not self.cluster.brokers() and (left := deadline - time.monotonic()) > 0:
            try:
                connection = self.get_connection(
                    node,
                    timeout_ms=1000 * left,
                    pop_on_close=False,
                    refresh_metadata_on_err=False,
                    reset_backoff_on_connect=False,
                )
                await connection
                self.cluster.update_metadata(
                    await connection.send_request(self.cluster.metadata_request(), 1000 * left)
                )
            except IncompatibleBrokerVersion:
                raise
            except Exception as error:  # noqa: BLE001 - sockets, TLS, logins: the deadline ends it
                if (failed := self._conns.pop(node, None)) is not None:
                    failed.close(error)
                self.update_backoff(node)
            await self._net.sleep(min(left, self.connection_delay(node)))
        if not self.cluster.brokers():
            raise KafkaTimeoutError(f"Unable to bootstrap from {self.config['bootstrap_servers']}")

    def _first(self, attempts: Iterable[Callable[[], Future]]) -> Future:
        """Begin the attempts one after the other; return the first success, else the last failure."""
        result, left, running = Future(), deque(attempts), 0

        def begin() -> None:
            nonlocal running
            if result.is_done or not left:
                return
            attempt = left.popleft()
            running += 1
            if left:
                self._net.call_later(_NEXT_SECONDS, begin)
            try:
                future = attempt()
            except Exception as error:  # noqa: BLE001 - as if it had failed later
                future = Future().failure(error)
            future.add_callback(succeeded)
            future.add_errback(failed)

        def succeeded(value: Any) -> None:  # noqa: ANN401 - a response
            if not result.is_done:
                result.success(value)

        def failed(error: Exception) -> None:
            nonlocal running
            running -= 1
            begin()
            if not running and not result.is_done:
                result.failure(error)

        begin()
        return result


def make_client(**configs: Any) -> KafkaNetClient:  # noqa: ANN401 - kafka-python's own settings
    """Return what `KafkaAdminClient` sends its requests with."""
    network = NetworkSelector(**configs)
    return KafkaNetClient(network, BrokerConnections(network, **configs), **configs)


class BrokerGoneError(KafkaConnectionError):  # type: ignore[misc] # kafka-python is untyped
    """The other brokers do not count a broker to the cluster any more: it stopped, or lost its connection to them."""

"""Free ports, and the wait until a broker on one of them is ready: shared by the broker from jars and the container."""

import socket
from collections.abc import Callable

from kafka.errors import KafkaError
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming_app.errors import SetupError
from streaming_app.kafka.admin import Admin

HOST = "127.0.0.1"
_REQUEST_MS = 5000


class BrokerTimeoutError(Exception):
    """The broker did not answer in time, or answered for another cluster."""


def reserve_port(port: int | None = None) -> socket.socket:
    """Bind `port` on loopback, or any free port, and return the socket. Raises SetupError if the port is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port or 0))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise SetupError(f"Port {port} on {HOST} is not available ({reason}): choose another one") from None
    return listener


def wait_until_ready(port: int, cluster_id: str | None, seconds: float, check: Callable[[], None]) -> None:
    """Wait until the broker on this port answers for this cluster (None: for any), as it does once it is unfenced.

    `check` is called before every attempt and may raise to end the wait. Raises BrokerTimeoutError.
    """
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type((OSError, KafkaError, BrokerTimeoutError)),
            stop=stop_after_delay(seconds),
            wait=wait_fixed(0.1),
        ):
            with attempt:
                check()
                _describe_cluster(port, cluster_id)
    except RetryError:
        raise BrokerTimeoutError from None


def _describe_cluster(port: int, cluster_id: str | None) -> None:
    socket.create_connection((HOST, port), timeout=1).close()  # fails silently, where a Kafka client would log an error
    admin = Admin(
        bootstrap_servers=f"{HOST}:{port}",
        request_timeout_ms=_REQUEST_MS,
        bootstrap_timeout_ms=_REQUEST_MS,
        reconnect_backoff_max_ms=200,  # a broker that is still fenced answers, but lists no broker
    )
    try:
        actual_id = admin.describe_cluster()["cluster_id"]
    finally:
        admin.close()
    if cluster_id and actual_id != cluster_id:
        raise BrokerTimeoutError

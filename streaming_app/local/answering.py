"""Free ports, and when a broker on one of them counts as ready: shared by the broker from jars and the container."""

import socket
from collections.abc import Callable

from kafka.errors import KafkaError
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming_app.local.errors import LocalError
from streaming_app.protocol.admin import Admin

HOST = "127.0.0.1"
_REQUEST_MS = 5000


class NotReadyError(Exception):
    """The broker did not answer in time."""


def reserve(port: int | None = None) -> socket.socket:
    """Bind a port for a moment, to learn that it is free; without `port`, any that is. LocalError when it is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port or 0))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise LocalError(f"Port {port} on {HOST} cannot be had ({reason}): choose another one") from None
    return listener


def await_answer(port: int, cluster_id: str | None, seconds: float, still_alive: Callable[[], None]) -> None:
    """Wait until a broker on this port answers for this cluster (None: for any), as it does once it is unfenced.

    `still_alive` is called before every try, to raise when waiting is in vain. Raises NotReadyError.
    """
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type((OSError, KafkaError, NotReadyError)),
            stop=stop_after_delay(seconds),
            wait=wait_fixed(0.1),
        ):
            with attempt:
                still_alive()
                _ask(port, cluster_id)
    except RetryError:
        raise NotReadyError from None


def _ask(port: int, cluster_id: str | None) -> None:
    socket.create_connection((HOST, port), timeout=1).close()  # a quiet refusal, before any Kafka client complains
    admin = Admin(
        bootstrap_servers=f"{HOST}:{port}",
        request_timeout_ms=_REQUEST_MS,
        bootstrap_timeout_ms=_REQUEST_MS,
        reconnect_backoff_max_ms=200,  # a broker that is still fenced answers, but lists no broker
    )
    try:
        answered = admin.describe_cluster()["cluster_id"]
    finally:
        admin.close()
    if cluster_id and answered != cluster_id:
        raise NotReadyError

"""A broker in a container of Kafka's image, and the environment variable that selects the kind of broker.

STREAMS_GROUPS_BROKER=docker selects it; `jars`, the default, selects `LocalBroker`. `make check-deploy` tests it with
an image of Kafka that is built from the jars. All figures of this project were measured with `LocalBroker`.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streaming_app.errors import SetupError
from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.sandbox.broker import (
    START_SECONDS,
    BrokerTimeoutError,
    LocalBroker,
    broker_configuration,
    wait_until_ready,
)
from streaming_app.sandbox.child_process import HOST, Startable, reserve_port

BROKER_VARIABLE = "STREAMS_GROUPS_BROKER"
_CLIENT_PORT, _CONTROLLER_PORT = 9092, 9093


class ContainerBroker(Startable):
    """A broker in a container of `apache/kafka`; its port is published on loopback, and `stop()` saves its log."""

    def __init__(
        self, directory: Path, *, version: str = KAFKA_VERSION, properties: Mapping[str, str] | None = None
    ) -> None:
        """Prepare a broker of `version`; nothing runs before `start()`."""
        self.directory = directory.absolute()
        self.version = version
        self.port: int | None = None
        self._properties = dict(properties or {})
        self._container: Any = None

    @property
    def bootstrap_server(self) -> str:
        """`127.0.0.1:PORT`; known after the first start."""
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """The log of the container; `stop()` writes it."""
        return self.directory / "broker.log"

    def start(self) -> None:
        """Start the container, and return when the broker is ready. Raises SetupError, also if Docker does not run."""
        with reserve_port() as listener:
            self.port = listener.getsockname()[1]
        try:
            self._container = self._create_container()
            self._container.start()
        except ImportError:
            raise SetupError(
                f"{BROKER_VARIABLE}=docker needs testcontainers: pip install streams-groups[test]"
            ) from None
        except Exception as error:  # noqa: BLE001 - docker-py passes on any error of its transport
            self._container = None
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SetupError(
                f"{BROKER_VARIABLE}=docker, but Docker does not start Kafka ({reason}): start Docker, or unset "
                f"{BROKER_VARIABLE}"
            ) from None
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop and remove the container with its data."""
        if self._container:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.log_file.write_bytes(b"".join(self._container.get_logs()))
            self._container.stop()
            self._container = None

    def restart(self) -> None:
        """Stop and start with the same data and port."""
        self._container.get_wrapped_container().restart()
        self._wait_until_ready()

    def _create_container(self) -> Any:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - an optional dependency

        configuration = broker_configuration(
            self.version,
            listeners={"PLAINTEXT": f"0.0.0.0:{_CLIENT_PORT}", "CONTROLLER": f"{HOST}:{_CONTROLLER_PORT}"},
            advertised=self.bootstrap_server,
            properties=self._properties,
        )
        container = DockerContainer(f"apache/kafka:{self.version}")
        for name, value in configuration.items():
            container.with_env(f"KAFKA_{name.replace('.', '_').upper()}", value)
        ports: dict[str, Any] = container.ports  # (address, port) makes docker-py publish on that address only
        ports[f"{_CLIENT_PORT}/tcp"] = (HOST, self.port)
        return container

    def _wait_until_ready(self) -> None:
        try:
            wait_until_ready(self.port or 0, None, START_SECONDS, lambda: None)
        except BrokerTimeoutError:
            self.stop()
            raise SetupError(
                f"Kafka {self.version} in Docker did not answer within {START_SECONDS:.0f} s (log: {self.log_file})"
            ) from None


Broker = LocalBroker | ContainerBroker
"""A broker of either kind."""


def select_broker(
    directory: Path,
    *,
    properties: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Broker:
    """Prepare the kind of broker that STREAMS_GROUPS_BROKER names. Raises SetupError for an unknown kind."""
    choice = os.environ.get(BROKER_VARIABLE) or "jars"
    if choice == "jars":
        return LocalBroker(directory, properties=properties, progress=progress)
    if choice == "docker":
        return ContainerBroker(directory, properties=properties)
    raise SetupError(f"{BROKER_VARIABLE} is {choice!r}: set it to jars or docker")

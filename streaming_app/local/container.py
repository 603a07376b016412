"""The same broker from Kafka's image through testcontainers, and the setting that chooses it.

STREAMS_GROUPS_BROKER=docker takes it; `jars`, the default, takes `LocalBroker`. No Docker engine ran where this was
written: beyond the line that says so, it is untried. Every figure of this project comes from `LocalBroker`.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from typing_extensions import Self

from streaming_app.local.answering import HOST, NotReadyError, await_answer, reserve
from streaming_app.local.broker import START_SECONDS, LocalBroker
from streaming_app.local.configuration import broker_configuration
from streaming_app.local.errors import LocalError
from streaming_app.local.jars import KAFKA_VERSION
from streaming_app.local.startable import Startable

SETTING = "STREAMS_GROUPS_BROKER"
_CLIENT_PORT, _CONTROLLER_PORT = 9092, 9093


class Broker(Protocol):
    """What both kinds of broker offer."""

    @property
    def bootstrap_server(self) -> str: ...  # noqa: D102 - see LocalBroker

    @property
    def log_file(self) -> Path: ...  # noqa: D102 - see LocalBroker

    def start(self) -> None: ...  # noqa: D102 - see LocalBroker

    def stop(self) -> None: ...  # noqa: D102 - see LocalBroker

    def restart(self) -> None: ...  # noqa: D102 - see LocalBroker

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def chosen_broker(
    directory: Path,
    *,
    version: str = KAFKA_VERSION,
    properties: Mapping[str, str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Broker:
    """Prepare the kind of broker that STREAMS_GROUPS_BROKER names; raises LocalError for a name that is none."""
    choice = os.environ.get(SETTING) or "jars"
    if choice == "jars":
        return LocalBroker(directory, version=version, properties=properties, progress=progress)
    if choice == "docker":
        return ContainerBroker(directory, version=version, properties=properties)
    raise LocalError(f"{SETTING} is {choice!r}: set it to jars or docker")


class ContainerBroker(Startable):
    """A broker in a container of `apache/kafka`, its port published on loopback, its log saved when it stops."""

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
        """`127.0.0.1:PORT`, known once the broker was started."""
        return f"{HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        """What the container logged, written by `stop()`."""
        return self.directory / "broker.log"

    def start(self) -> None:
        """Start the container and return when the broker answers. Raises LocalError, also when Docker does not run."""
        with reserve() as listener:
            self.port = listener.getsockname()[1]
        try:
            self._container = self._prepared()
            self._container.start()
        except ImportError:
            raise LocalError(f"{SETTING}=docker needs testcontainers: pip install streams-groups[test]") from None
        except Exception as error:  # noqa: BLE001 - docker-py raises what its transport raises
            self._container = None
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise LocalError(
                f"{SETTING}=docker, but Docker does not start Kafka ({reason}): start Docker, or unset {SETTING}"
            ) from None
        self._await_answer()

    def stop(self) -> None:
        """End and remove the container, data included."""
        if self._container:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.log_file.write_bytes(b"".join(self._container.get_logs()))
            self._container.stop()
            self._container = None

    def restart(self) -> None:
        """Stop and start with the same data and port."""
        self._container.get_wrapped_container().restart()
        self._await_answer()

    def _prepared(self) -> Any:  # noqa: ANN401 - testcontainers is optional
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only those who have Docker need it

        configuration = broker_configuration(
            self.version,
            listeners={"PLAINTEXT": f"0.0.0.0:{_CLIENT_PORT}", "CONTROLLER": f"{HOST}:{_CONTROLLER_PORT}"},
            advertised=self.bootstrap_server,
            properties=self._properties,
        )
        container = DockerContainer(f"apache/kafka:{self.version}")
        for name, value in configuration.items():
            container.with_env(f"KAFKA_{name.replace('.', '_').upper()}", value)
        ports: dict[str, Any] = container.ports  # an address with the port is docker-py's way to publish on it alone
        ports[f"{_CLIENT_PORT}/tcp"] = (HOST, self.port)
        return container

    def _await_answer(self) -> None:
        try:
            await_answer(self.port or 0, None, START_SECONDS, lambda: None)
        except NotReadyError:
            self.stop()
            raise LocalError(
                f"Kafka {self.version} in Docker did not answer within {START_SECONDS:.0f} s (log: {self.log_file})"
            ) from None

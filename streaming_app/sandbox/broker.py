"""A real Apache Kafka broker in KRaft mode, from jars, on loopback, for the demo and the tests."""

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import javaproperties

from streaming_app.errors import SetupError
from streaming_app.jvm.jar_sets import find_jars, kafka_jars
from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.jvm.java import last_line
from streaming_app.sandbox.broker_config import broker_configuration
from streaming_app.sandbox.jvm_command import jvm_command
from streaming_app.sandbox.managed_process import ManagedProcess
from streaming_app.sandbox.process import Process
from streaming_app.sandbox.readiness_wait import HOST, BrokerTimeoutError, reserve_port, wait_until_ready

START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_ERROR_WORDS = ("Exception", "ERROR", "FATAL", "Error:")


class SecureListeners(NamedTuple):
    """The listeners of a broker in addition to PLAINTEXT, and what they need."""

    protocols: Mapping[str, str] = MappingProxyType({})
    """The security protocol by listener."""
    scram: Sequence[str] = ()
    """Users, as `kafka-storage format --add-scram` takes them."""
    java_options: Sequence[str] = ()


class LocalBroker(ManagedProcess):
    """One broker that is also its own controller, with its data, configuration and log in one directory.

    Use it as a context manager, or call `start()` and `stop()`. If this process is killed, the broker is stopped.
    """

    def __init__(  # noqa: PLR0913 - each is one setting of a broker
        self,
        directory: Path,
        *,
        version: str = KAFKA_VERSION,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        secure_listeners: SecureListeners | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare a broker of `version` (4.1 to 4.4) in `directory`; nothing runs before `start()`.

        `properties` are broker configurations that override the defaults of this package. Without `port` a free one
        is chosen at the first start and kept. `address()` returns the addresses of `secure_listeners`. `progress` gets
        a line now and then while jars are downloaded.
        """
        self.directory = directory.absolute()
        self.version = version
        self.port = port
        self._properties = dict(properties or {})
        self._secure_listeners = secure_listeners or SecureListeners()
        self._progress = progress
        self._ports: dict[str, int] = {}  # of the listeners other than PLAINTEXT

    @property
    def bootstrap_server(self) -> str:
        """`127.0.0.1:PORT`, known once the broker was started."""
        return f"{HOST}:{self.port}"

    def address(self, listener: str) -> str:
        """Return `127.0.0.1:PORT` of one of the secure listeners, known once the broker was started."""
        return f"{HOST}:{self._ports[listener]}"

    @property
    def cluster_id(self) -> str | None:
        """The id that the storage was formatted with; None before the first start."""
        try:
            with self._meta_properties.open(encoding="latin-1") as file:
                return str(javaproperties.load(file)["cluster.id"])
        except FileNotFoundError:
            return None

    @property
    def log_file(self) -> Path:
        """Everything the broker logs and prints."""
        return self.directory / "broker.log"

    def start(self) -> None:
        """Start the broker and return when it is ready, after 4 to 6 s if the jars are there.

        Raises SetupError without Java, without the network at the first start, when the port is in use, and when the
        broker exits or does not answer within 60 s.
        """
        if self.pid is not None:
            return
        class_path = find_jars(kafka_jars(self.version), self._progress)
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as sockets:
            self.port = sockets.enter_context(reserve_port(self.port)).getsockname()[1]
            for name in ("CONTROLLER", *self._secure_listeners.protocols):
                self._ports[name] = sockets.enter_context(reserve_port(self._ports.get(name))).getsockname()[1]
        configuration = self._write_configuration()
        java, *rest = jvm_command(self.directory, class_path)
        command: list[str | Path] = [java, *self._secure_listeners.java_options, *rest]
        if not self._meta_properties.exists():
            users = [part for user in self._secure_listeners.scram for part in ("--add-scram", user)]
            format_storage: list[str | Path] = [
                "kafka.tools.StorageTool",
                "format",
                "-t",
                _new_cluster_id(),
                "-c",
                configuration,
                *users,
            ]
            self._format_storage([*command, *format_storage])
        self._process = Process([*command, "kafka.Kafka", configuration], self.log_file, grace_seconds=_GRACE_SECONDS)
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """Crash the broker (SIGKILL); `start()` starts it again with its data and port."""
        if self._process:
            self._process.kill(9)
            self.stop()

    def restart(self) -> None:
        """Stop and start with the same data and port."""
        self.stop()
        self.start()

    @property
    def _meta_properties(self) -> Path:
        return self.directory / "data" / "meta.properties"

    def _write_configuration(self) -> Path:
        configuration = broker_configuration(
            self.version,
            listeners={"PLAINTEXT": self.bootstrap_server, **{name: self.address(name) for name in self._ports}},
            advertised=self.bootstrap_server,
            protocols=self._secure_listeners.protocols,
            properties={"log.dirs": str(self.directory / "data"), **self._properties},
        )
        path = self.directory / "server.properties"
        with path.open("w", encoding="latin-1") as file:
            javaproperties.dump(configuration, file, timestamp=False)
        return path

    def _format_storage(self, command: list[str | Path]) -> None:
        tool = Process(command, self.log_file)
        try:
            code = tool.wait(START_SECONDS)
        finally:
            tool.stop()
        if code != 0:
            raise SetupError(f"Kafka {self.version} could not format its storage: {self._last_error()}")

    def _wait_until_ready(self, process: Process) -> None:
        def check() -> None:
            if process.exit_code is not None:
                raise SetupError(f"The Kafka {self.version} broker exited during startup: {self._last_error()}")

        try:
            wait_until_ready(self.port or 0, self.cluster_id, START_SECONDS, check)
        except BrokerTimeoutError:
            raise SetupError(
                f"The Kafka {self.version} broker did not answer within {START_SECONDS:.0f} s: {self._last_error()}"
            ) from None

    def _last_error(self) -> str:
        return f"{last_line(self.log_file, *_ERROR_WORDS)} (log: {self.log_file})"


def _new_cluster_id() -> str:
    """Return an id in the form of Kafka's Uuid, without dashes: tools would take a leading one for an option."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")

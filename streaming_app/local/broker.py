"""A real Apache Kafka broker in KRaft mode, from jars, on loopback, for the demo and the tests."""

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import javaproperties

from streaming_app.local import jars
from streaming_app.local.answering import HOST, NotReadyError, await_answer, reserve
from streaming_app.local.configuration import broker_configuration
from streaming_app.local.errors import LocalError
from streaming_app.local.jvm import jvm_command
from streaming_app.local.process import Process, last_line
from streaming_app.local.startable import OwnsProcess

START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_TROUBLE = ("Exception", "ERROR", "FATAL", "Error:")


class Guarded(NamedTuple):
    """What it takes to have listeners besides PLAINTEXT."""

    protocols: Mapping[str, str] = MappingProxyType({})
    """The security protocol by listener."""
    scram: Sequence[str] = ()
    """Users, as `kafka-storage format --add-scram` takes them."""
    java_options: Sequence[str] = ()


class LocalBroker(OwnsProcess):
    """One broker that is also its own controller, with its data, configuration and log in one directory.

    Use it as a context manager, or call `start()` and `stop()`. A process that is killed leaves no broker behind.
    """

    def __init__(  # noqa: PLR0913 - each is one setting of a broker
        self,
        directory: Path,
        *,
        version: str = jars.KAFKA_VERSION,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        guarded: Guarded | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare a broker of `version` (4.1 to 4.4) in `directory`; nothing runs before `start()`.

        `properties` are broker configurations that win over the defaults of this module. Without `port` a free one
        is taken at the first start and kept. `guarded` adds listeners, whose addresses `address()` tells. `progress`
        gets one line now and then while jars are fetched.
        """
        self.directory = directory.absolute()
        self.version = version
        self.port = port
        self._properties = dict(properties or {})
        self._guarded = guarded or Guarded()
        self._progress = progress
        self._ports: dict[str, int] = {}  # of the listeners besides PLAINTEXT

    @property
    def bootstrap_server(self) -> str:
        """`127.0.0.1:PORT`, known once the broker was started."""
        return f"{HOST}:{self.port}"

    def address(self, listener: str) -> str:
        """`127.0.0.1:PORT` of one of the listeners of `guarded`, known once the broker was started."""
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
        """Start the broker and return when it answers, 4 to 6 s later once the jars are there.

        Raises LocalError without Java, without the network at the first time, when the port is taken, and when the
        broker dies or says nothing for 60 s.
        """
        if self.pid is not None:
            return
        class_path = jars.resolve(
            *jars.kafka_coordinates(self.version), exclude=jars.KAFKA_EXCLUSIONS, progress=self._progress
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            self.port = held.enter_context(reserve(self.port)).getsockname()[1]
            for name in ("CONTROLLER", *self._guarded.protocols):
                self._ports[name] = held.enter_context(reserve(self._ports.get(name))).getsockname()[1]
        configuration = self._write_configuration()
        java, *rest = jvm_command(self.directory, class_path)
        run: list[str | Path] = [java, *self._guarded.java_options, *rest]
        if not self._meta_properties.exists():
            users = [part for user in self._guarded.scram for part in ("--add-scram", user)]
            format_storage: list[str | Path] = [
                "kafka.tools.StorageTool",
                "format",
                "-t",
                _new_cluster_id(),
                "-c",
                configuration,
                *users,
            ]
            self._format([*run, *format_storage])
        self._process = Process([*run, "kafka.Kafka", configuration], self.log_file, grace_seconds=_GRACE_SECONDS)
        try:
            self._await_answer(self._process)
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """Crash the broker (SIGKILL); `start()` brings it back with its data and port."""
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
            protocols=self._guarded.protocols,
            properties={"log.dirs": str(self.directory / "data"), **self._properties},
        )
        path = self.directory / "server.properties"
        with path.open("w", encoding="latin-1") as file:
            javaproperties.dump(configuration, file, timestamp=False)
        return path

    def _format(self, command: list[str | Path]) -> None:
        tool = Process(command, self.log_file)
        try:
            code = tool.wait(START_SECONDS)
        finally:
            tool.stop()
        if code != 0:
            raise LocalError(f"Kafka {self.version} could not format its storage: {self._trouble()}")

    def _await_answer(self, process: Process) -> None:
        def still_alive() -> None:
            if process.exit_code is not None:
                raise LocalError(f"The Kafka {self.version} broker died while starting: {self._trouble()}")

        try:
            await_answer(self.port or 0, self.cluster_id, START_SECONDS, still_alive)
        except NotReadyError:
            raise LocalError(
                f"The Kafka {self.version} broker did not answer within {START_SECONDS:.0f} s: {self._trouble()}"
            ) from None

    def _trouble(self) -> str:
        return f"{last_line(self.log_file, *_TROUBLE)} (log: {self.log_file})"


def _new_cluster_id() -> str:
    """Make an id in the form of Kafka's Uuid, which must not begin with a dash: tools would take it for an option."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")

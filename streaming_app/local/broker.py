"""A real Apache Kafka broker in KRaft mode, from jars, on loopback, for the demo and the tests."""

import os
import socket
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import javaproperties
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed
from typing_extensions import Self

from streaming_app.local import jars
from streaming_app.local.errors import LocalError
from streaming_app.local.java import find_java
from streaming_app.local.process import Process, last_line

HOST = "127.0.0.1"
START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_NODE_ID = 1
# A small heap and a compiler that does not optimise for hours: a broker that answers soon beats one that is fast later.
_JVM = (
    "-Xmx512m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
)
_TROUBLE = ("Exception", "ERROR", "FATAL", "Error:")
_FIRST_RELEASE_WITH_DESCRIPTIONS = (4, 4)

_LOG4J = """\
status = error
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
logger.state.name = state.change.logger
logger.state.level = warn
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
"""

_DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": str(_NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node has no second replica, and fewer partitions are made sooner.
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "false",  # a source topic that is missing must stay missing
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "50",
    "group.streams.assignment.interval.ms": "0",
    # Members that tests and the demo drive by hand beat when they are told to, not every five seconds.
    "group.streams.session.timeout.ms": "300000",
    "group.streams.max.session.timeout.ms": "3600000",
    "group.streams.heartbeat.interval.ms": "5000",
    # Groups of the demo are held in states that pass, by group configs that no production broker would allow.
    "group.streams.max.assignment.interval.ms": "86400000",
    # A broker that comes back after a crash waits until its former self is given up; the default is nine seconds.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "2097152",
}
_PLUGIN_CLASS = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
_DESCRIPTION_PLUGIN = {"group.streams.topology.description.plugin.class": _PLUGIN_CLASS}
_EARLY_ACCESS = {  # before 4.4, streams groups or the newest versions of their requests had to be asked for
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "unstable.api.versions.enable": "true",
    "unstable.feature.versions.enable": "true",
}


class LocalBroker:
    """One broker that is also its own controller, with its data, configuration and log in one directory.

    Use it as a context manager, or call `start()` and `stop()`. A process that is killed leaves no broker behind.
    """

    def __init__(
        self,
        directory: Path,
        *,
        version: str = jars.KAFKA_VERSION,
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare a broker of `version` (4.1 to 4.4) in `directory`; nothing runs before `start()`.

        `properties` are broker configurations that win over the defaults of this module. Without `port` a free one
        is taken at the first start and kept. `progress` gets one line now and then while jars are fetched.
        """
        self.directory = directory.absolute()
        self.version = version
        self.port = port
        self._properties = dict(properties or {})
        self._progress = progress
        self._controller_port: int | None = None
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_server(self) -> str:
        """`127.0.0.1:PORT`, known once the broker was started."""
        return f"{HOST}:{self.port}"

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

    @property
    def pid(self) -> int | None:
        """The process id of the broker itself; None while none runs."""
        return self._process.pid if self._process and self._process.exit_code is None else None

    def start(self) -> None:
        """Start the broker and return when it answers, 4 to 6 s later once the jars are there.

        Raises LocalError without Java, without the network at the first time, when the port is taken, and when the
        broker dies or says nothing for 60 s.
        """
        if self.pid is not None:
            return
        java = find_java()
        class_path = jars.resolve(
            *jars.kafka_coordinates(self.version), exclude=jars.KAFKA_EXCLUSIONS, progress=self._progress
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        with _reserved(self.port) as client, _reserved(self._controller_port) as controller:
            self.port, self._controller_port = client.getsockname()[1], controller.getsockname()[1]
        configuration = self._write_configuration()
        run: list[str | Path] = [java, *_JVM, f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"]
        run += ["-Dlog4j2.disableJmx=true", f"-Dkafka.logs.dir={self.directory}"]
        run += ["-cp", os.pathsep.join(map(str, class_path))]
        if not self._meta_properties.exists():
            self._format([*run, "kafka.tools.StorageTool", "format", "-t", _new_cluster_id(), "-c", configuration])
        self._process = Process([*run, "kafka.Kafka", configuration], self.log_file, grace_seconds=_GRACE_SECONDS)
        try:
            self._await_answer(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the broker and wait until it is gone; its data stay. Harmless when none runs."""
        if self._process:
            self._process.stop()
            self._process = None

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
        (self.directory / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
        release = tuple(int(part) for part in self.version.split(".")[:2])
        configuration = {
            **_DEFAULTS,
            **(_DESCRIPTION_PLUGIN if release >= _FIRST_RELEASE_WITH_DESCRIPTIONS else _EARLY_ACCESS),
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "controller.quorum.voters": f"{_NODE_ID}@{HOST}:{self._controller_port}",
            "log.dirs": str(self.directory / "data"),
            **self._properties,
        }
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
        for attempt in Retrying(
            retry=retry_if_exception_type((OSError, KafkaError, _NotOurs)),
            stop=stop_after_delay(START_SECONDS),
            wait=wait_fixed(0.1),
            retry_error_callback=lambda _state: self._give_up(f"did not answer within {START_SECONDS:.0f} s"),
        ):
            with attempt:
                if process.exit_code is not None:
                    self._give_up("died while starting")
                self._ask()

    def _ask(self) -> None:
        """Ask the broker for its cluster, which it answers once it is unfenced."""
        socket.create_connection((HOST, self.port or 0), timeout=1).close()  # a quiet refusal, before any Kafka client
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_server, request_timeout_ms=5000)
        try:
            cluster = admin.describe_cluster()
        finally:
            admin.close()
        if cluster["cluster_id"] != self.cluster_id:
            raise _NotOurs(str(cluster["cluster_id"]))

    def _give_up(self, what: str) -> None:
        raise LocalError(f"The Kafka {self.version} broker {what}: {self._trouble()}")

    def _trouble(self) -> str:
        return f"{last_line(self.log_file, *_TROUBLE)} (log: {self.log_file})"


class _NotOurs(Exception):  # noqa: N818 - a reason to ask again, nobody sees it
    """Another cluster answers on the port."""


def _new_cluster_id() -> str:
    """Make an id in the form of Kafka's Uuid, which must not begin with a dash: tools would take it for an option."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def _reserved(port: int | None) -> socket.socket:
    """Bind a port for a moment, to learn that it is free; None takes any that is."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port or 0))
    except OSError as error:
        listener.close()
        raise LocalError(f"Port {port} on {HOST} cannot be had ({error.strerror}): choose another one") from None
    return listener

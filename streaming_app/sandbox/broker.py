"""A real Apache Kafka broker in KRaft mode, started from jars on loopback, for the demo and the tests.

The configuration (one small node with fast responses and long session timeouts) and the wait for readiness also serve
the broker in a container that tests use.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import javaproperties
from kafka.errors import KafkaError
from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_fixed,
)

from streaming_app.errors import SetupError
from streaming_app.jvm.jars import KAFKA_VERSION, find_jars, kafka_jars
from streaming_app.jvm.java import find_java, last_line
from streaming_app.kafka.connection import Admin
from streaming_app.sandbox.child_process import HOST, Process, Startable, reserve_port
from streaming_app.sandbox.member import new_id

START_SECONDS = 60.0
_GRACE_SECONDS = 10.0
_REQUEST_MS = 5000
_PORT_ATTEMPTS = 3
_ERROR_WORDS = ("Exception", "ERROR", "FATAL", "Error:")

NODE_ID = 1
_PLUGIN_CLASS = "org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin"
_FIRST_RELEASE_WITH_DESCRIPTIONS = (4, 4)

_CONFIGURATION = {
    "process.roles": "broker,controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    # One node can hold one replica only, and the broker creates few partitions faster.
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
    # Tests and the demo decide when members send heartbeats; the pauses may exceed five seconds.
    "group.streams.session.timeout.ms": "300000",
    "group.streams.max.session.timeout.ms": "3600000",
    "group.streams.heartbeat.interval.ms": "5000",
    "group.consumer.session.timeout.ms": "300000",
    "group.consumer.max.session.timeout.ms": "300000",
    "group.share.session.timeout.ms": "300000",
    "group.share.max.session.timeout.ms": "300000",
    # The demo uses group configs to keep groups in transient states. No production broker would allow these values.
    "group.streams.max.assignment.interval.ms": "86400000",
    # After a crash the broker cannot register until its previous session has timed out; the default is nine seconds.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "1000",
    "metadata.max.idle.interval.ms": "0",  # no NoOpRecord twice a second in the metadata log
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "2097152",
}
_EARLY_ACCESS = {  # before 4.4, streams groups or the newest request versions had to be enabled
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
    "unstable.api.versions.enable": "true",
    "unstable.feature.versions.enable": "true",
}
JVM_OPTIONS: tuple[str, ...] = (
    "-Xmx512m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disableJmx=true",
)
"""A small heap, and only the first JIT tier: a short startup matters more than peak throughput."""
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


class BrokerTimeoutError(Exception):
    """The broker did not answer in time, or its cluster id is another one."""


class SecureListeners(NamedTuple):
    """The listeners of a broker in addition to PLAINTEXT, and their settings."""

    protocols: Mapping[str, str] = MappingProxyType({})
    scram: Sequence[str] = ()
    """Users, in the syntax of `kafka-storage format --add-scram`."""
    java_options: Sequence[str] = ()


class LocalBroker(Startable):
    """A broker that is also its controller, with all its files in one directory. It ends with this process."""

    def __init__(  # noqa: PLR0913 - each is one setting of a broker
        self,
        directory: Path,
        *,
        version: str = KAFKA_VERSION,
        class_path: Sequence[Path] = (),
        properties: Mapping[str, str] | None = None,
        port: int | None = None,
        secure_listeners: SecureListeners | None = None,
        new_cluster_id: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare a broker of `version` (4.1 to 4.4) in `directory`; nothing runs before `start()`.

        `class_path` has the jars if `version` is not the default. `properties` override the package's defaults. Without
        `port` the first start chooses a free port, which the broker then keeps; `address()` returns the addresses of
        `secure_listeners`. `progress` gets a line every few seconds during a download of jars.
        """
        self.directory = directory.absolute()
        self.version = version
        self.port = port
        self._properties = dict(properties or {})
        self._secure_listeners = secure_listeners or SecureListeners()
        self._new_cluster_id = new_cluster_id or new_id()
        self._class_path, self._progress = class_path, progress
        self._ports: dict[str, int] = {}  # by listener, without PLAINTEXT
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The id of the broker's process; None while it does not run."""
        return self._process.pid if self._process and self._process.exit_code is None else None

    @property
    def bootstrap_server(self) -> str:
        """`127.0.0.1:PORT`; known after the first start."""
        return f"{HOST}:{self.port}"

    def address(self, listener: str) -> str:
        """Return `127.0.0.1:PORT` of a secure listener; known after the first start."""
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
        """Start the broker, and return when it is ready. Raises SetupError, also if it does not answer within 60 s."""
        if self.pid is not None:
            return
        class_path = self._class_path or find_jars(kafka_jars(), self._progress)
        is_chosen = self.port is None
        again = retry_if_exception(lambda one: isinstance(one, SetupError) and "Address already in use" in str(one))
        stop = stop_after_attempt(_PORT_ATTEMPTS)
        for attempt in Retrying(retry=again, stop=stop, wait=wait_fixed(0.5), reraise=True):
            if is_chosen:  # another process may have taken the port between the choice and the bind
                self.port, self._ports = None, {}
            with attempt:
                self._start(class_path)

    def _start(self, class_path: Sequence[Path]) -> None:
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
            tool = ("kafka.tools.StorageTool", "format", "-t", self._new_cluster_id, "-c", configuration)
            self._format_storage([*command, *tool, *users])
        self._process = Process([*command, "kafka.Kafka", configuration], self.log_file, grace_seconds=_GRACE_SECONDS)
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the broker, and wait until it has exited; its files stay. Does nothing if it does not run."""
        if self._process:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Crash the broker (SIGKILL); `start()` starts it again with its data and port."""
        if self._process:
            self._process.kill(9)
            self.stop()

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


def broker_configuration(
    version: str,
    *,
    listeners: Mapping[str, str],
    advertised: str,
    properties: Mapping[str, str],
    protocols: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the whole configuration of one node; `properties` override everything.

    `listeners` has `host:port` by listener: PLAINTEXT, CONTROLLER, and those in `protocols`, each with its security
    protocol. `advertised` is that of PLAINTEXT; the other listeners advertise their own.
    """
    advertised_listeners = {"PLAINTEXT": advertised, **{name: listeners[name] for name in protocols}}
    protocol_map = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **protocols}
    release = tuple(int(part) for part in version.split(".")[:2])
    has_descriptions = release >= _FIRST_RELEASE_WITH_DESCRIPTIONS
    return {
        **_CONFIGURATION,
        **({"group.streams.topology.description.plugin.class": _PLUGIN_CLASS} if has_descriptions else _EARLY_ACCESS),
        "listeners": _format_listeners(listeners),
        "advertised.listeners": _format_listeners(advertised_listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocol_map.items()),
        "controller.quorum.voters": f"{NODE_ID}@{listeners['CONTROLLER']}",
        **properties,
    }


def _format_listeners(listeners: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in listeners.items())


def jvm_command(directory: Path, class_path: Sequence[Path]) -> list[str | Path]:
    """Return the java command for a program of Kafka; write its log settings into `directory`. Raises SetupError."""
    settings = directory / "log4j2.properties"
    settings.write_text(_LOG4J, encoding="utf-8")
    command: list[str | Path] = [find_java(), *JVM_OPTIONS, f"-Dlog4j2.configurationFile={settings}"]
    return [*command, "-cp", os.pathsep.join(map(str, class_path))]


def wait_until_ready(port: int, cluster_id: str | None, seconds: float, check: Callable[[], None]) -> None:
    """Wait until the broker answers with this cluster id (None: any). `check` may raise. Raises BrokerTimeoutError."""
    settings = {"request_timeout_ms": _REQUEST_MS, "bootstrap_timeout_ms": _REQUEST_MS}
    try:
        for attempt in Retrying(
            retry=retry_if_exception_type((OSError, KafkaError, BrokerTimeoutError)),
            stop=stop_after_delay(seconds),
            wait=wait_fixed(0.1),
        ):
            with attempt:
                check()
                socket.create_connection((HOST, port), timeout=1).close()  # raises: a Kafka client would log an error
                # A broker that is still fenced answers, but the broker list is empty.
                with Admin(f"{HOST}:{port}", reconnect_backoff_max_ms=200, **settings) as admin:
                    if cluster_id not in {None, admin.describe_cluster()["cluster_id"]}:
                        raise BrokerTimeoutError
    except RetryError:
        raise BrokerTimeoutError from None

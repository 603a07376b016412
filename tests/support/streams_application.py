"""Real Kafka Streams applications with either protocol and Kafka's client: `StreamsApplication.java`."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import javaproperties

from streaming_app.errors import SetupError
from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.jvm.java import last_line
from streaming_app.sandbox.broker import jvm_command
from streaming_app.sandbox.child_process import Startable
from tests.support.ivy import LOG4J, resolve
from tests.support.waiting import wait_until

_PROGRAM = Path(__file__).with_name("StreamsApplication.java")
_STRINGS = "org.apache.kafka.common.serialization.Serdes$StringSerde"
_ANSWER = "tasks: "
_GRACE_SECONDS = 60.0


class StreamsApplication(Startable):
    """A process of an application, whose topics must exist. It ends with the test process."""

    def __init__(
        self,
        bootstrap_server: str,
        directory: Path,
        application_id: str,
        topology: str,
        topics: Sequence[str],
        *,
        instances: int = 1,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
    ) -> None:
        """Prepare a process with its state and log in `directory`; nothing runs before `start()`.

        `topology` is the name of one in the program, with these `topics`, the output last. `application_id` is the
        group's id; `properties` are configurations of Kafka Streams, `1.client.tag.zone` that of the second instance.
        `version` is the release of the client, 2.8 or later.
        """
        self.application_id = application_id
        self.directory = directory.absolute()
        self._coordinates = (f"org.apache.kafka:kafka-streams:{version}", LOG4J)
        self._arguments = [topology, str(instances), *topics]
        self.properties = {
            "application.id": application_id,
            "bootstrap.servers": bootstrap_server,
            "group.protocol": "streams",
            "state.dir": str(self.directory / "state"),
            "statestore.cache.max.bytes": "0",
            "default.key.serde": _STRINGS,
            "default.value.serde": _STRINGS,
            **(properties or {}),
        }
        self._process: subprocess.Popen[str] | None = None

    @property
    def log_file(self) -> Path:
        return self.directory / "application.log"

    @property
    def pid(self) -> int | None:
        """The id of the process; None while it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it unless it runs; returns at once: it joins its group some seconds later."""
        if self.pid is not None:
            return
        self.stop()
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self.directory / "streams.properties"
        with settings.open("w", encoding="latin-1") as file:
            javaproperties.dump(self.properties, file, timestamp=False)
        command = [*jvm_command(self.directory, resolve(*self._coordinates)), _PROGRAM, settings, *self._arguments]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, bufsize=1
            )

    def check(self) -> None:
        """Raise SetupError if it has ended by itself."""
        if self._process and self._process.poll() is not None:
            error = last_line(self.log_file, "Exception")
            raise SetupError(f"{self.application_id} has ended: {error} (log: {self.log_file})")

    def tasks(self) -> list[dict[str, Any]]:
        """Return the client's answer for each of its instances: the state, the threads with their tasks, the stores."""
        begin = self.log_file.stat().st_size
        self._say("tasks")

        def answers() -> list[str]:
            self.check()
            lines = self.log_file.read_bytes()[begin:].decode("utf-8", "replace").split("\n")[:-1]
            return [line for line in lines if line.startswith(_ANSWER)]

        assert wait_until(lambda: bool(answers())), self.log_file
        described: list[dict[str, Any]] = json.loads(answers()[0].removeprefix(_ANSWER))
        return described

    def produce(self, *, on: bool) -> None:
        """Let it write into its input topic, or pause writing."""
        self._say("produce" if on else "pause")

    def kill(self) -> None:
        """Kill it, as a machine failure would: it does not leave its group."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Close it, and wait until it has ended. Its files stay."""
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _say(self, line: str) -> None:
        self.check()
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")

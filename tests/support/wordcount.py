"""A real Kafka Streams application: Kafka's own WordCount example, configured to use the streams group protocol."""

from collections.abc import Callable, Mapping
from pathlib import Path

import javaproperties

from streaming_app.errors import SetupError
from streaming_app.jvm.java import last_line
from streaming_app.sandbox.broker import jvm_command
from streaming_app.sandbox.process import ManagedProcess, Process
from tests.support.ivy import LOG4J, resolve

COORDINATES = ("org.apache.kafka:kafka-streams-examples:4.3.1", LOG4J)  # kafka-streams 4.4.0 did not resolve
INPUT_TOPIC, OUTPUT_TOPIC = "streams-plaintext-input", "streams-wordcount-output"
_GRACE_SECONDS = 10.0


class WordCount(ManagedProcess):
    """One instance of WordCount. Its two topics must exist. Use it as a context manager, or `start()` and `stop()`."""

    program = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
    """The class, or a file of source code, that Java runs with a file of configurations."""

    def __init__(
        self,
        bootstrap_server: str,
        directory: Path,
        *,
        application_id: str = "streams-wordcount",
        properties: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare an instance with its state and log in `directory`. `application_id` is its group's id.

        `properties` are Kafka Streams configurations that override those of this module.
        """
        self.application_id = application_id
        self.directory = directory.absolute()
        self._configuration = {
            "application.id": application_id,
            "bootstrap.servers": bootstrap_server,
            "group.protocol": "streams",
            "state.dir": str(self.directory / "state"),
            **(properties or {}),
        }
        self._progress = progress

    @property
    def log_file(self) -> Path:
        """Everything the application logs and prints."""
        return self.directory / "wordcount.log"

    def start(self) -> None:
        """Start the application and return without waiting; it joins its group some seconds later.

        Raises SetupError without Java, or without the network at the first start.
        """
        if self.pid is not None:
            return
        class_path = resolve(*COORDINATES)
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self.directory / "streams.properties"
        with settings.open("w", encoding="latin-1") as file:
            javaproperties.dump(self._configuration, file, timestamp=False)
        command = [*jvm_command(self.directory, class_path), self.program, settings]
        self._process = Process(command, self.log_file, grace_seconds=_GRACE_SECONDS)

    def check(self) -> None:
        """Raise SetupError if the application has exited by itself."""
        if self._process and self._process.exit_code is not None:
            error = last_line(self.log_file, "Exception", "ERROR")
            raise SetupError(f"WordCount exited: {error} (log: {self.log_file})")

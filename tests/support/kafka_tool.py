"""Kafka's scripts. `kafka-streams-groups.sh` runs in one JVM for all calls, since a start takes two seconds."""

import re
import shlex
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import Any

from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.sandbox.broker import jvm_command
from tests.support.ivy import LOG4J, NOT_PUBLISHED, resolve
from tests.support.kafka_oracle import Oracle
from tests.support.waiting import MINUTES

COORDINATES = (f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}", LOG4J)
Rows = list[dict[str, str]]


class StreamsGroupsTool:
    """Kafka's `StreamsGroupCommand` for the groups of one cluster."""

    def __init__(self, bootstrap_server: str) -> None:
        self._server = bootstrap_server
        self._oracle = Oracle(resolve(*COORDINATES, exclude=NOT_PUBLISHED))
        self._gateway: Any = self._oracle._gateway
        jvm = self._gateway.jvm
        command = jvm.java.lang.Class.forName("org.apache.kafka.tools.streams.StreamsGroupCommand")
        texts = self._texts()
        self._execute = command.getDeclaredMethod("execute", self._array(jvm.java.lang.Class, texts.getClass()))
        self._execute.setAccessible(True)

    def close(self) -> None:
        self._oracle.close()

    def rows(self, *arguments: str) -> Rows:
        jvm = self._gateway.jvm
        output = jvm.java.io.ByteArrayOutputStream()
        jvm.java.lang.System.setOut(jvm.java.io.PrintStream(output))
        texts = self._texts("--bootstrap-server", self._server, *arguments)
        self._execute.invoke(None, self._array(jvm.java.lang.Object, texts))
        return parse(output.toString())

    def _texts(self, *values: str) -> Any:
        return self._array(self._gateway.jvm.java.lang.String, *values)

    def _array(self, kind: Any, *values: Any) -> Any:
        array = self._gateway.new_array(kind, len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array


_TITLE = re.compile(r"COORDINATOR \(ID\)|\S+")


def column_slices(head: str) -> list[tuple[str, slice]]:
    """Return the titles of padded columns, and the position of each in a line."""
    found = [(title[0], title.start()) for title in _TITLE.finditer(head)]
    ends = [start for _, start in found[1:]] + [None]
    return [(title, slice(start, end)) for (title, start), end in zip(found, ends, strict=True)]


def parse(text: str) -> Rows:
    """Return the rows of padded columns below the line that begins with GROUP."""
    lines = text.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("GROUP ")), len(lines))
    if begin == len(lines):
        return []
    cells = column_slices(lines[begin])
    rows = takewhile(str.strip, lines[begin + 1 :])  # another table may follow
    return [{title: line[cell].strip() for title, cell in cells} for line in rows]


_CLASSES = {
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-streams-application-reset.sh": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups.sh": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}


def run_script(server: str, directory: Path, command: str) -> str:
    """Run a script as in a document, with this address of the brokers unless it has one; return its output and errors.

    `directory` may be written. Raises AssertionError if the script fails.
    """
    script, *arguments = shlex.split(command)
    address = [] if "--bootstrap-server" in arguments else ["--bootstrap-server", server]
    java = jvm_command(directory, resolve(*COORDINATES, exclude=NOT_PUBLISHED))
    ran = subprocess.run(
        [*map(str, java), _CLASSES[script], *address, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MINUTES,
        check=False,
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}"
    return ran.stdout

"""Kafka's scripts, such as `kafka-configs.sh`, run as documents show them, but for the address of the brokers."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from streaming_app.sandbox.broker import jvm_command
from tests.support.ivy import NOT_PUBLISHED, resolve
from tests.support.kafka_tool import COORDINATES
from tests.support.waiting import MINUTES

_CLASSES = {
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-streams-groups.sh": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}


def run_script(server: str, directory: Path, command: str) -> str:
    """Return what a script prints, its errors too; `directory` may be written. Fails where the script fails."""
    script, *arguments = shlex.split(command)
    java = jvm_command(directory, resolve(*COORDINATES, exclude=NOT_PUBLISHED))
    ran = subprocess.run(
        [*map(str, java), _CLASSES[script], "--bootstrap-server", server, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MINUTES,
        check=False,
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}"
    return ran.stdout

"""The java command for Kafka's programs: a small heap, a fast start, and a log on standard output."""

import os
from collections.abc import Sequence
from pathlib import Path

from streaming_app.jvm.java import find_java

# Only the first JIT tier: a short startup matters more than peak throughput.
_FLAGS = (
    "-Xmx512m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disableJmx=true",
)
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


def jvm_command(directory: Path, class_path: Sequence[Path]) -> list[str | Path]:
    """Return the java command without the main class, and write its log settings into `directory`.

    Raises SetupError if there is no Java.
    """
    settings = directory / "log4j2.properties"
    settings.write_text(_LOG4J, encoding="utf-8")
    command: list[str | Path] = [find_java(), *_FLAGS, f"-Dlog4j2.configurationFile={settings}"]
    return [*command, "-cp", os.pathsep.join(map(str, class_path))]

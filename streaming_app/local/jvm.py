"""How Kafka's programs are run on a JVM here: a small heap, a quick start, and a log on standard output."""

import os
from collections.abc import Sequence
from pathlib import Path

from streaming_app.local.java import find_java

# A compiler that does not optimise for hours: a server that answers soon beats one that is fast later.
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
    """Return the command up to where the main class follows; its log settings are written into `directory`.

    Raises LocalError when there is no Java.
    """
    settings = directory / "log4j2.properties"
    settings.write_text(_LOG4J, encoding="utf-8")
    command: list[str | Path] = [find_java(), *_FLAGS, f"-Dlog4j2.configurationFile={settings}"]
    return [*command, "-cp", os.pathsep.join(map(str, class_path))]

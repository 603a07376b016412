"""The JVM of Spark's driver: how it starts, with settings that other users of the machine cannot read, and how it ends.

Every local user can read the command line of a process (`/proc/PID/cmdline`), and Spark's settings contain secrets,
such as the keys of an object store. Java options may contain passwords, too. So the settings are passed in a properties
file, and the Java options in an argument file (`java @FILE`). Only their owner can read these files. They are removed
once the JVM has read them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import javaproperties

from streaming_app.jvm.jars import DIRECTORY_VARIABLE, JarSet
from streaming_app.jvm.java import cache_directory

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# After an OutOfMemoryError a JVM may go on without some of its threads. With this option it exits, and the supervisor
# starts the job again.
_EXIT_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
# The catch-up of 10,000 groups of 10 members on two cores took 1.35 GB with this collector and 1.75 GB with Java's
# default, G1, and was no slower: the heap is small, and a pause does not matter to a batch.
_COLLECTOR = "-XX:+UseSerialGC"
# The heap may grow for a moment, for example for large records of one group. These options return the memory after the
# first collection (`-ShrinkHeapInSteps`: by default only after the fourth). By default Java keeps two fifths of the
# heap free after each collection, so that each peak enlarges it. It also starts with 1/64 of the machine's memory, and
# uses all of it before the first collection.
_HEAP = ("-Xms192m", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30", "-XX:-ShrinkHeapInSteps")
# By default each thread keeps a buffer outside the heap, as large as its largest write.
_WRITE_BUFFERS = "-Djdk.nio.maxCachedBufferSize=262144"
_CHOOSES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")  # Java does not start if two are chosen
# By these options C2 compiles a method after ten times as many calls as by default. Most methods that Spark calls
# thousands of times while it starts are not worth compiling: in a first start on two cores (30 s), the compilers took
# 20 s of processor time, and all tasks 17 s.
COMPILER_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_ASCII_LOCALES = {"C", "POSIX"}
_OWNER_ONLY = 0o600


class SparkJvm:
    """The process of a JVM, from its start to its end; every method may be called from any thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: JavaGateway | None = None

    @property
    def is_running(self) -> bool:
        """Whether the JVM was launched and has not exited."""
        return self._process is not None and self._process.poll() is None

    def launch(self, settings: Mapping[str, str], java_options: Sequence[str], log_file: Path) -> JavaGateway:
        """Launch the JVM, and return the connection to it; its output goes to `log_file`.

        `settings` are Spark's. A user's `spark.driver.extraJavaOptions` is added to `java_options`, and wins where both
        set the same option. Raises PySparkException if the JVM exits at once, OSError if a file cannot be written.
        """
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - only the job loads Spark

        own = shlex.split(settings.get(JAVA_OPTIONS, ""))
        memory = [_EXIT_WITHOUT_MEMORY, *collector_option(own), *_HEAP, _WRITE_BUFFERS]
        options = [*memory, *COMPILER_OPTIONS, *java_options, *own]
        # A line of an argument file is quoted as a string of JSON (see the manual of the `java` command).
        quoted = [json.dumps(one, ensure_ascii=False) for one in options]
        with ExitStack() as files:
            arguments = files.enter_context(_private_file(log_file.with_suffix(".java"), "\n".join(quoted)))
            properties = {**settings, JAVA_OPTIONS: f'"@{arguments}"'}
            file = files.enter_context(
                _private_file(log_file.with_suffix(".properties"), javaproperties.dumps(properties, timestamp=False))
            )
            log = files.enter_context(log_file.open("ab"))
            files.enter_context(_variables(file))
            # In its own session the JVM gets no Ctrl-C from the terminal: the job gets it, and ends the JVM.
            options_of_process = {"stdout": log, "stderr": log, "start_new_session": True}
            gateway: Any = launch_gateway(popen_kwargs=options_of_process)  # type: ignore[no-untyped-call] # it has no types
        self._gateway, self._process = gateway, gateway.proc
        return gateway

    def wait(self, seconds: float) -> bool:
        """Wait until the JVM has exited; return whether it has."""
        if self._process is None:
            return True
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.is_running

    def close(self, seconds: float) -> None:
        """Close the connection, at which the JVM exits; kill the JVM if it has not exited after so many seconds."""
        if self._gateway is not None and self.is_running:
            with suppress(Exception):  # py4j raises several kinds if the JVM has begun to exit
                self._gateway.shutdown()
        if self._process is not None and self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
        if not self.wait(seconds):
            self.kill()

    def terminate(self) -> None:
        """Send SIGTERM: Spark then stops and removes its temporary files."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the JVM and its process group; this also ends Spark's Python workers."""
        if self._process is not None and self.is_running:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def archive_path(jar_set: JarSet) -> Path:
    """Return the path of the archive for these jars: in STREAMS_GROUPS_JARS, else in the cache. It may not exist."""
    return Path(os.environ.get(DIRECTORY_VARIABLE) or cache_directory()).absolute() / f"{jar_set.name}.jsa"


def archive_option(jar_set: JarSet) -> list[str]:
    """Return Java's option that uses the archive; empty if there is no archive."""
    path = archive_path(jar_set)
    return [f"-XX:SharedArchiveFile={path}"] if path.is_file() else []


def collector_option(options: Sequence[str] = ()) -> list[str]:
    """Return the option for our garbage collector; empty if these options or Java's variables choose one."""
    chosen = " ".join([*options, *(os.environ.get(name, "") for name in _JAVA_VARIABLES)])
    return [] if _CHOOSES_COLLECTOR.search(chosen) else [_COLLECTOR]


@contextmanager
def _private_file(path: Path, text: str) -> Iterator[Path]:
    """Write a file that only its owner can ever read; remove it after the block."""
    path.unlink(missing_ok=True)  # left by a job that was killed
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            file.write(text)
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _variables(properties_file: Path) -> Iterator[None]:
    """Set the variables for `spark-submit`: our options, then the user's. `spark-defaults.conf` still applies.

    With an ASCII locale such as C in LC_ALL, which is replaced, Java opens no file whose name has other characters.
    """
    ours = f"--properties-file {shlex.quote(str(properties_file))} --load-spark-defaults"
    variables = {_SUBMIT_ARGS: f"{ours} {os.environ.get(_SUBMIT_ARGS) or 'pyspark-shell'}"}
    if os.environ.get("LC_ALL") in _ASCII_LOCALES:
        variables["LC_ALL"] = "C.UTF-8"
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

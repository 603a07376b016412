"""The JVM of Spark's driver: its launch, with settings that no other user of the machine can read, and its end.

The command line of a process is readable by every local user (`/proc/PID/cmdline`), and Spark's settings contain
secrets, such as the keys of an object store. So the settings are in a properties file, and the options of Java, which
may contain passwords, too, in an argument file (`java @FILE`). Both can be read by their owner only, and are removed
once the JVM has read them.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import javaproperties

from streaming_app.jvm.jars import DIRECTORY_VARIABLE, JarSet
from streaming_app.jvm.java import cache_directory

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# A JVM out of memory may go on without some of its threads; one that exits is started again with the job.
_EXIT_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
# The catch-up of 10,000 groups of 10 members on two cores took 1.35 GB with it and 1.75 GB with Java's default, G1, and
# was no slower: the heap is small, and batches do not mind a pause.
_COLLECTOR = "-XX:+UseSerialGC"
# A heap that has grown for a moment, such as for large records of one group, is given back after a collection. By
# default two fifths of it are to be free after each, which lets it grow at every peak, and it begins with a 64th of the
# machine's memory, all of which is touched before anything is collected. What is to be given back is so after the first
# collection, and not after the fourth.
_HEAP = ("-Xms192m", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30", "-XX:-ShrinkHeapInSteps")
# By default each thread keeps, outside the heap, a buffer as large as the largest that it has written.
_WRITE_BUFFERS = "-Djdk.nio.maxCachedBufferSize=262144"
_CHOOSES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")  # Java does not start with two of them
# C2 gets a method after ten times as many calls as by default: most of what is called thousands of times while Spark
# starts is not worth it. Of a first start on two cores (30 s) compilers took 20 s of processor time, all tasks 17 s.
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
    """The process of a JVM, from its launch until it has ended; every method may be called from any thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: JavaGateway | None = None

    @property
    def is_running(self) -> bool:
        """Whether the JVM was launched and has not exited."""
        return self._process is not None and self._process.poll() is None

    def launch(self, settings: Mapping[str, str], java_options: Sequence[str], log_file: Path) -> JavaGateway:
        """Launch the JVM, and return the connection to it; what it prints goes to `log_file`.

        `settings` are Spark's; a user's `spark.driver.extraJavaOptions` is added to `java_options`, and wins where both
        set the same. Raises PySparkException if the JVM exits at once, OSError if a file cannot be written.
        """
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - only the job loads Spark

        own = shlex.split(settings.get(JAVA_OPTIONS, ""))
        memory = [_EXIT_WITHOUT_MEMORY, *collector_option(own), *_HEAP, _WRITE_BUFFERS]
        options = [*memory, *COMPILER_OPTIONS, *java_options, *own]
        with ExitStack() as files:
            arguments = files.enter_context(
                _private_file(log_file.with_suffix(".java"), "\n".join(map(_quote_argument, options)))
            )
            properties = {**settings, JAVA_OPTIONS: f'"@{arguments}"'}
            file = files.enter_context(
                _private_file(log_file.with_suffix(".properties"), javaproperties.dumps(properties, timestamp=False))
            )
            log = files.enter_context(log_file.open("ab"))
            files.enter_context(_variables(file))
            # Its own session: Ctrl-C in a terminal is for the job alone, which ends the JVM.
            options_of_process = {
                "stdout": log,
                "stderr": log,
                "start_new_session": True,
                "cwd": working_directory(log_file.parent),
            }
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
        """Let the JVM exit, as it does when its connections end, and kill it if it takes longer than this."""
        if self._gateway is not None and self.is_running:
            with suppress(Exception):  # py4j raises several kinds if the JVM is ending already
                self._gateway.shutdown()
        if self._process is not None and self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
        if not self.wait(seconds):
            self.kill()

    def terminate(self) -> None:
        """Send SIGTERM: Spark then stops, and removes its temporary files."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the JVM and the processes of its group; Spark's Python workers end with it."""
        if self._process is not None and self.is_running:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def archive_path(jar_set: JarSet) -> Path:
    """Return where the archive for a session with these jars is, or is to be: where the jars are, else in the cache."""
    return Path(os.environ.get(DIRECTORY_VARIABLE) or cache_directory()).absolute() / f"{jar_set.name}.jsa"


def archive_option(jar_set: JarSet) -> list[str]:
    """Return Java's option that uses the archive; none if there is no archive."""
    path = archive_path(jar_set)
    return [f"-XX:SharedArchiveFile={path}"] if path.is_file() else []


def working_directory(fallback: Path) -> Path:
    """Return the working directory, or `fallback` if it cannot be written: Spark 4.0 makes a directory there."""
    try:
        with TemporaryDirectory(dir=Path.cwd()):
            return Path.cwd()
    except OSError:
        return fallback.absolute()


def collector_option(options: Sequence[str] = ()) -> list[str]:
    """Return the option of our garbage collector, none if these options or Java's variables choose one."""
    chosen = " ".join([*options, *(os.environ.get(name, "") for name in _JAVA_VARIABLES)])
    return [] if _CHOOSES_COLLECTOR.search(chosen) else [_COLLECTOR]


def _quote_argument(option: str) -> str:
    """Return the option as a line of an argument file, see the description of the command `java`."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@contextmanager
def _private_file(path: Path, text: str) -> Iterator[Path]:
    """Write a file that only its owner can read, from its creation on; remove it after the block."""
    path.unlink(missing_ok=True)  # of a job that was killed
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            file.write(text)
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _variables(properties_file: Path) -> Iterator[None]:
    """Set what PySpark passes to `spark-submit`, before what a user set; `spark-defaults.conf` still applies.

    And a locale in which Java can open a file whatever its name: in that of `LC_ALL=C`, Python can, and Java cannot.
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

"""Checks this machine: Java, memory, the user, temporary files, jars, and the port of the metrics."""

import os
import pwd
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from streaming_app.checks.result import Result, failed, ok, warning
from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.jars import connector_jars, find_jars
from streaming_app.jvm.java import find_java, java_version
from streaming_app.jvm.spark_installation import version_warning
from streaming_app.section import is_open_to_all
from streaming_app.text import GIB, count, first_of, gibibytes, parse_size
from streaming_app.web.server import bind

DRIVER_MEMORY, DEFAULT_HEAP = "spark.driver.memory", "2g"
_OUTSIDE_HEAP = 1 * GIB  # needed by the JVM, the job and its Python workers with few groups; see deploy/README.md
ADVISED = ((1_000, 2 * GIB), (10_000, 3 * GIB), (100_000, 5 * GIB), (1_000_000, 8 * GIB))
"""Up to so many groups of any type -> the memory to give the job: at least half as much again as was measured, see
docs/performance.md. For more groups, the last one."""
_ADVISED_FOR = 100_000  # groups, where their number is not known
_SECRETS, _NAMED_SECRETS = ("password", "jaas.config", "keystore.key", "secret"), 3
"""Words in the names of client properties with secret values."""
_CGROUP_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_machine(metrics_listen: str | None, progress: Callable[[str], None] | None = None) -> Iterator[Result]:
    """Yield the results about this machine, except for its memory. Downloads missing jars, as the job does."""
    yield _check_java()
    yield check_user(os.getuid())
    yield check_temporary_files(Path(tempfile.gettempdir()))
    if line := version_warning():
        yield warning("versions", line)
    yield _check_jars(progress)
    yield check_port(metrics_listen)


def check_client_properties(file: Path | None, properties: Mapping[str, str]) -> Iterator[Result]:
    """Yield a warning if every user of the machine may read a properties file with secrets."""
    secrets = sorted(name for name in properties if any(word in name for word in _SECRETS))
    if file and secrets and is_open_to_all(file.stat()):
        text = f"every user may read {file}, which contains {first_of(secrets, _NAMED_SECRETS)}"
        yield warning("command_config", text, "chmod o= it, or mount it with defaultMode 0440")


def _check_java() -> Result:
    try:
        java = find_java()
    except SetupError as error:
        return failed("Java", str(error))
    return ok("Java", f"Java {java_version(java)}: {java}")


def _check_jars(progress: Callable[[str], None] | None) -> Result:
    try:
        found = find_jars(connector_jars(), progress)
    except SetupError as error:
        remedy = "on a host without network, see `streams-groups check --fetch-jars` in the docs"
        return failed("jars", str(error), remedy)
    if not found:
        return ok("jars", "Spark fetches them at the start")
    return ok("jars", f"{len(found)} in {found[0].parent if len({jar.parent for jar in found}) == 1 else 'the cache'}")


def total_memory() -> int:
    """Return the bytes of memory that this process may use: the limit of the container or the machine."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _CGROUP_FILES:
        with suppress(OSError, ValueError):  # the file does not exist, or its value is "max"
            limits.append(int(file.read_text("ascii")))
    return min(limits)


def judge_memory(total: int, setting: str, groups: int | None) -> Result:
    """Return whether `total` bytes are enough for the groups (None: how many is not known), and for Spark's heap."""
    try:
        heap = parse_size(setting, unit="m")
    except ValueError:  # Spark would not understand it either
        return failed("memory", f"{DRIVER_MEMORY} is not a size", f"set it to one such as {DEFAULT_HEAP}")
    most = _ADVISED_FOR if groups is None else groups
    table = next((size for number, size in ADVISED if most <= number), ADVISED[-1][1])
    advised = max(table, heap + _OUTSIDE_HEAP)
    whom = f"up to {count(most, 'group')}; their number is not known" if groups is None else count(groups, "group")
    text = f"{gibibytes(total)}; advised are {gibibytes(advised)} for {whom}, with {gibibytes(heap)} of heap"
    if total < heap + _OUTSIDE_HEAP:
        return failed("memory", text, f"give it more, or set {DRIVER_MEMORY} to less")
    if total < advised:
        return warning("memory", text, "the first catch-up may not have enough")
    return ok("memory", text)


def check_user(user_id: int) -> Result:
    """Return whether the user has a name. Without a name, Hadoop's login fails and Spark does not start."""
    try:
        return ok("user", pwd.getpwuid(user_id).pw_name)
    except KeyError:
        return failed("user", f"user {user_id} has no name", "add a line for it to /etc/passwd, or run as another user")


def check_temporary_files(directory: Path) -> Result:
    """Return whether the JVM can load libraries from a directory: Snappy, Zstandard and Netty unpack theirs there."""
    check = "temporary files"
    try:
        flags = os.statvfs(directory).f_flag
    except OSError as error:
        return failed(check, f"{directory}: {reason_of(error)}", "set TMPDIR to another directory")
    if flags & getattr(os, "ST_NOEXEC", 0):  # not on macOS
        return failed(check, f"{directory} is mounted with noexec", "mount it with exec (Docker: --tmpfs /tmp:exec)")
    return ok(check, f"libraries can be loaded from {directory}")


def check_port(listen: str | None) -> Result:
    """Return whether the address of the metrics is free. Closing sockets of an ended server do not count."""
    if listen is None:
        return ok("metrics port", "no metrics are served (metrics.listen is not set)")
    try:
        bind(listen).close()
    except OSError as error:
        advice = "end the program that listens there, or set metrics.listen to another address"
        return failed("metrics port", f"{listen}: {reason_of(error)}", advice)
    return ok("metrics port", f"{listen} is free")

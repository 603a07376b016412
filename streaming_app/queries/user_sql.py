"""The SQL that users type, on the command line and on the page: one SELECT, in a process of its own, within limits.

The memory and the threads of a query end with its process. A query that takes too long or too much is an error in one
line, and the caller goes on.
"""

import os
import pickle
import resource
import signal
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from tempfile import TemporaryDirectory
from typing import NamedTuple

from streaming_app.errors import UserError, WarehouseError
from streaming_app.queries.clusters import check_cluster, find_clusters, find_staleness
from streaming_app.tables.arrow import to_rows
from streaming_app.tables.definitions import tables, views
from streaming_app.tables.heartbeat_file import read_heartbeat
from streaming_app.tables.location import Location
from streaming_app.tables.reader import Row, WarehouseReader
from streaming_app.text import GIB, format_duration, gibibytes

# With this process's path for imports: `-c` would look into the working directory first, where a user's modules may be.
_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from streaming_app.queries.user_sql import answer; answer()"
_POOL_SHARE = 4  # of the address space, the part that DataFusion's pool may have before it spills
_MAX_AGE = timedelta(minutes=2)  # a job that writes to an object store writes a heartbeat every 30 s
_OUT_OF_MEMORY = ("Resources exhausted", "MemoryError")
_KILLED_BY = {-signal.SIGABRT, -signal.SIGBUS, -signal.SIGKILL, -signal.SIGSEGV}
"""Exit codes of a process whose native code got no memory."""


class QueryLimits(NamedTuple):
    """What a query may take."""

    seconds: float = 60.0
    memory: int = 4 * GIB
    """Address space of its process, in bytes."""
    rows: int | None = None
    size: int | None = None
    """Of the rows, in bytes."""


class QueryResult(NamedTuple):
    """What a query returned. If two columns have the same name, the last one counts."""

    names: list[str]
    rows: list[Row]
    is_cut: bool
    """There are more rows than the limits allow."""
    notes: list[str]
    """Lines for the user: which clusters are not up to date."""


def run_limited(warehouse: Location, cluster: str | None, query: str, limits: QueryLimits) -> QueryResult:
    """Return what a query returns on the rows of a cluster; None: of all clusters.

    Raises WarehouseError if it is not one SELECT, fails, or needs too much time or memory.
    """
    command = [sys.executable, "-c", _CHILD, *sys.path]
    with TemporaryDirectory(prefix="streams-groups-sql-") as directory:  # a process that is killed removes no files
        environment = {**os.environ, "TMPDIR": directory}
        try:
            done = subprocess.run(  # noqa: S603 - our own program
                command,
                input=pickle.dumps((str(warehouse), cluster, query, limits)),
                capture_output=True,
                timeout=limits.seconds,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            done = None
    if done is None or done.returncode == -signal.SIGALRM:
        raise WarehouseError(f"The query took more than {format_duration(limits.seconds)}: raise --timeout")
    found: QueryResult | str
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2] or "its process gave no reason"
        found = f"The query failed: {reason}"
    else:
        found = pickle.loads(done.stdout)  # noqa: S301 - our own
    if isinstance(found, QueryResult):
        return found
    if done.returncode in _KILLED_BY or any(words in found for words in _OUT_OF_MEMORY):
        raise WarehouseError(f"The query needs more than {gibibytes(limits.memory)} of memory: raise --memory")
    raise WarehouseError(found)


def answer() -> None:
    """Run the query of the parent process within its limits, and return the result on standard output."""
    warehouse, cluster, query, limits = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the parent
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)  # in case the parent is killed
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    memory = limits.memory if most == resource.RLIM_INFINITY else min(limits.memory, most)
    found: QueryResult | str
    try:
        location = Location.of(warehouse)
        reader = WarehouseReader(location, cluster, copies=True)
        reader.open_named(f"{query} groups")  # by many threads, whose stacks are not memory that it needs
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cluster is not None:
            check_cluster(reader, location, cluster)
        notes = _stale(reader, location, cluster)
        reader.limit_memory(memory // _POOL_SHARE)
        found = run_sql(reader, query, limits)._replace(notes=notes)
    except UserError as raised:
        found = str(raised)
    sys.stdout.buffer.write(pickle.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # threads of delta-rs may still run


def _stale(reader: WarehouseReader, warehouse: Location, cluster: str | None) -> list[str]:
    now = datetime.now(timezone.utc)
    names = find_clusters(reader, warehouse) if cluster is None else [cluster]
    lines = (find_staleness(read_heartbeat(warehouse, one), one, now, _MAX_AGE) for one in names)
    return [line for line in lines if line]


def run_sql(reader: WarehouseReader, query: str, limits: QueryLimits) -> QueryResult:
    """Return what one SELECT returns. Raises WarehouseError if it fails, or is not a SELECT."""
    words = query.strip().removesuffix(";").lower().split()
    if words == ["show", "tables"]:  # DataFusion supports it only with its information schema
        kinds = {"table": tables(), "view": views()}
        rows = [{"name": one.name, "type": kind, "about": one.about} for kind, all_ in kinds.items() for one in all_]
        return QueryResult(["name", "type", "about"], rows, is_cut=False, notes=[])
    reader.check_is_query(query)
    found = reader.query(query)
    names, rows = list(dict.fromkeys(found.column_names)), to_rows(found.slice(0, limits.rows))
    while limits.size is not None and rows and len(pickle.dumps(rows)) > limits.size:
        rows = rows[: len(rows) // 2]
    return QueryResult(names, rows, is_cut=len(rows) < len(found), notes=[])

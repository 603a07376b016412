"""The page in a child process of the job: what the two tell each other, and what the child does.

The child gets a line of JSON, `ServedPage`, on standard input, and serves the page until the end of that: it ends with
the job, however that ended. Each line that it writes for the job begins with `SAYS` or `FAILS`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_app.config.routing import NamedIntervals, RouteSettings, SilenceSettings, make_silences
from streaming_app.config.sections import PageSettings
from streaming_app.errors import UserError
from streaming_app.section import Address, Section
from streaming_app.tables.location import Location

if TYPE_CHECKING:
    from streaming_app.web.page import PageServer

SAYS, FAILS = "says: ", "fails: "
"""What the child has to say to whoever runs the job, and why it cannot serve the page."""
_END_SECONDS = 1.0
_MAX_DESCRIPTORS = 1024  # its connections are limited to a third of that
_OOM_SCORE = Path("/proc/self/oom_score_adj")


class ServedPage(Section):
    """All that the child needs to serve the page: of secrets, only the files in which they are."""

    warehouse: str
    cluster: str
    listen: Address
    page: PageSettings
    routes: tuple[RouteSettings, ...] = ()
    silences: tuple[SilenceSettings, ...] = ()
    time_intervals: tuple[NamedIntervals, ...] = ()
    bootstrap_server: str | None = None
    command_config: Path | None = None


def serve_for_job() -> None:
    """Serve the page as the child of a job, and exit.

    Signals for the whole group of processes, as Ctrl-C or systemd send them, are the job's: it ends the child.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    served = ServedPage.model_validate_json(sys.stdin.buffer.readline())
    _limit(served.page.memory)
    try:
        server = _server_of(served)
    except UserError as error:
        _tell(FAILS, str(error))
        raise SystemExit(1) from None
    server.start()
    threading.Thread(target=_end_with_job, args=(server,), name="end of the job", daemon=True).start()
    for line in server.lines():
        _tell(SAYS, line)
    server.wait()
    os._exit(0)  # a reading of the tables may wait for a store: nothing is waited for


def _limit(memory: int) -> None:
    """Bound memory and descriptors of this process; the kernel ends it and not the job if memory is short."""
    for kind, wanted in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS)):
        _, hard = resource.getrlimit(kind)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (most, most))
    with suppress(OSError):  # a system without it
        _OOM_SCORE.write_text("800")


def _server_of(served: ServedPage) -> PageServer:
    from streaming_app.web.access import PageAccess  # noqa: PLC0415 - the job loads this module, and none of these
    from streaming_app.web.descriptions import brokers_of  # noqa: PLC0415
    from streaming_app.web.page import PageServer  # noqa: PLC0415

    brokers = brokers_of(served.bootstrap_server, served.command_config) if served.bootstrap_server else None
    silences = make_silences(served.silences, served.time_intervals)
    settings = PageAccess.of(served.page, served.listen, brokers, served.routes, silences)
    warehouse = Location.of(served.warehouse)
    return PageServer(warehouse, served.cluster, settings, lambda line: _tell(SAYS, f"page: {line}"))


def _end_with_job(server: PageServer) -> None:
    sys.stdin.buffer.read()
    server.stop()
    time.sleep(_END_SECONDS)
    os._exit(0)


def _tell(kind: str, line: str) -> None:
    data = f"{kind}{' '.join(line.split())}\n".encode("utf-8", "backslashreplace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError:  # the job has ended, and this process ends, too
        pass

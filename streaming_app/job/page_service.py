"""The page of a job, in a child process: what it reads and draws takes neither the job's memory nor its processor.

Theory of operation
-------------------
The child serves the page until its standard input ends, so it ends with the job, even if that is killed. What it needs
to know it reads from there, see `streaming_app.web.page_child`. If it ends before the job, it is started again, after a
pause that doubles unless it had served the page for a while. Its lines become lines of the job.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from signal import Signals
from typing import TYPE_CHECKING

from streaming_app.errors import UserError
from streaming_app.job.service import Service
from streaming_app.report import Report, ReportOnce
from streaming_app.text import escape
from streaming_app.web.page_child import FAILS, SAYS, ServedPage

if TYPE_CHECKING:
    from streaming_app.config.settings import JobConfig

_RETRY_SECONDS = 30.0
_FIRST_PAUSE = 0.5
_STEADY_SECONDS = 60.0  # a page that was served for so long did not end for what is wrong from the start
_KILL_SECONDS = 1.5  # after its end was asked for; before that of `Service.close_seconds`
_REMEMBERED = 16  # lines that are not repeated
_MAX_LINE = 300

# With the job's path for imports: `-m` would look into the working directory first, where a user's modules may be.
_PROGRAM = """
import sys
sys.path[:] = sys.argv[1:]
from streaming_app.web.page_child import serve_for_job
serve_for_job()
"""


class PageService(Service):
    """Serves the page until it is closed; if that fails, again after a while."""

    def __init__(
        self,
        served: ServedPage,
        report: Report,
        retry_seconds: float = _RETRY_SECONDS,
        command: Sequence[str] | None = None,
    ) -> None:
        """Serve `served` with the command, by default the page's own.

        `report` gets a line when that begins, and for each new problem.
        """
        self._new_lines = ReportOnce(report, _REMEMBERED)
        super().__init__("page", self._new_lines, interval=retry_seconds)
        self._served, self._retry_seconds = served, retry_seconds
        self._command = command or [sys.executable, "-c", _PROGRAM, *sys.path]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_serving = False
        self._next_pause = _FIRST_PAUSE

    @property
    def pid(self) -> int | None:
        """The process that serves the page; None if there is none."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    def tick(self) -> None:
        """Run the child to its end. Raises UserError, with what it failed with."""
        self._is_serving = False
        problem = ""
        with self._start() as process:
            for line in process.stdout or ():
                problem = self._take(line.decode("utf-8", "backslashreplace").strip()) or problem
        raise UserError(problem or _end_of(process.returncode))

    def pause(self, seconds: float) -> float:
        """Return the seconds until the next child; the last one lived so many."""
        if not self._is_serving:
            return self._retry_seconds
        if seconds > _STEADY_SECONDS:
            self._new_lines.clear()
            self._next_pause = _FIRST_PAUSE
        pause = min(self._next_pause, self._retry_seconds)
        self._next_pause = 2 * pause
        return pause

    def failed(self, text: str) -> str:
        """Return the line about a child that has ended."""
        again = "it is started again" if self._is_serving else f"this is tried again every {self._retry_seconds:.0f} s"
        return f"page: {text}; {again}"

    def interrupt(self) -> None:
        """Let the child end; it is killed if it does not."""
        with self._lock:
            process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
            killer = threading.Timer(_KILL_SECONDS, process.kill)
            killer.daemon = True
            killer.start()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - our own program
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the job
        )
        with self._lock:
            self._process = process
        if process.stdin is not None:
            with suppress(OSError):  # it has ended already
                process.stdin.write(self._served.model_dump_json(by_alias=True).encode() + b"\n")
                process.stdin.flush()
        if self.stopping.is_set():
            self.interrupt()
        return process

    def _take(self, line: str) -> str:
        """Report a line of the child, unless it is a problem, which is returned."""
        if line.startswith(FAILS):
            return line.removeprefix(FAILS)
        if line.startswith(SAYS):
            self._is_serving = True
            self.succeeded()
            self.report(line.removeprefix(SAYS))
        elif line:
            self.report(f"page: {escape(line)[:_MAX_LINE]}")
        return ""


def _end_of(code: int) -> str:
    return f"its process was ended by {Signals(-code).name}" if code < 0 else f"its process ended with exit code {code}"


def make_page_service(config: JobConfig, report: Report, retry_seconds: float = _RETRY_SECONDS) -> PageService:
    """Return the page of a job that has `page.listen`."""
    served = ServedPage(
        warehouse=str(config.warehouse),
        cluster=config.cluster,
        listen=str(config.page.listen),
        page=config.page,
        routes=config.routes,
        silences=config.silences,
        time_intervals=config.time_intervals,
        bootstrap_server=config.bootstrap_server,
        command_config=config.command_config,
    )
    return PageService(served, report, retry_seconds)

"""Child processes that never outlive their parent: the package starts servers only through this module.

Also the base class of everything that starts and stops, and the choice of ports for servers.
"""

import atexit
import contextlib
import os
import random
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Self

from streaming_app.errors import SetupError, reason_of
from streaming_app.jvm.java import last_line
from streaming_app.sandbox import run_until_closed

HOST = "127.0.0.1"
_PORTS = range(15_000, 32_768)  # below the ports of outgoing connections: Linux 32,768, macOS and Windows 49,152
_PORT_ATTEMPTS = 100
_MARGIN_SECONDS = 10.0  # for the watchdog, in addition to the grace period


class Process:
    """A program in a session of its own that logs to a file, and ends at `stop()` or with this process."""

    def __init__(self, command: Sequence[str | Path], log_file: Path, *, grace_seconds: float = 10.0) -> None:
        """Start `command`, and append its output to `log_file`. After SIGTERM it has `grace_seconds` before SIGKILL."""
        self.log_file = log_file
        self._stop_seconds = grace_seconds + _MARGIN_SECONDS
        watchdog_command = [sys.executable, "-I", "-S", run_until_closed.__file__, str(grace_seconds)]
        with log_file.open("ab") as log:
            self._watchdog = subprocess.Popen(  # noqa: S603 - our own watchdog
                [*watchdog_command, *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        atexit.register(self.stop)
        pid = self._watchdog.stdout.readline() if self._watchdog.stdout else b""
        if not pid:
            self.stop()
            raise SetupError(f"{command[0]} could not be started: {last_line(log_file)} (log: {log_file})")
        self.pid = int(pid)

    @property
    def exit_code(self) -> int | None:
        """None while the program runs; 128 + N if signal N terminated it."""
        return self._watchdog.poll()

    def wait(self, timeout_seconds: float) -> int:
        """Wait until the program exits by itself; return its exit code. Raises subprocess.TimeoutExpired."""
        return self._watchdog.wait(timeout_seconds)

    def kill(self, signal: int) -> None:
        """Send a signal to the program itself, as a crash would."""
        if self.exit_code is None:
            os.kill(self.pid, signal)

    def stop(self) -> None:
        """Terminate the program, and wait until it has exited. Does nothing if it has exited already."""
        atexit.unregister(self.stop)
        with contextlib.suppress(BrokenPipeError):
            if self._watchdog.stdin:
                self._watchdog.stdin.close()
        if self._watchdog.stdout:
            self._watchdog.stdout.close()
        try:
            self._watchdog.wait(self._stop_seconds)
        except subprocess.TimeoutExpired:  # the watchdog itself hangs
            self.kill(9)
            self._watchdog.kill()
            self._watchdog.wait()


class Startable(ABC):
    """Something that starts and stops. As a context manager it runs during the block."""

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def reserve_port(port: int | None = None) -> socket.socket:
    """Bind `port`, by default any free port, on loopback; return the socket. Raises SetupError if it is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port is None:
            _bind_to_free_port(listener)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = reason_of(error)
        raise SetupError(f"Port {port} on {HOST} is not available ({reason}): choose another one") from None
    return listener


def _bind_to_free_port(listener: socket.socket) -> None:
    """Bind to a port outside the range of outgoing connections, so that a stopped server can bind it again later."""
    for _ in range(_PORT_ATTEMPTS):
        with contextlib.suppress(OSError):
            return listener.bind((HOST, random.SystemRandom().choice(_PORTS)))
    return listener.bind((HOST, 0))

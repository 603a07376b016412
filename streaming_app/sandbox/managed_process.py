"""Base classes of what is started and stopped: context managers, and those of them that run as one child process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from typing_extensions import Self

from streaming_app.sandbox.process import Process


class Startable(ABC):
    """Something that starts and stops. As a context manager it runs from the start of the block to its end."""

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ManagedProcess(Startable):
    """A startable that runs as a child process, which `start` assigns to `_process`."""

    _process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The id of the program's process; None while it does not run."""
        return self._process.pid if self._process and self._process.exit_code is None else None

    def stop(self) -> None:
        """Stop the process and wait until it has exited; its files stay. Does nothing if it does not run."""
        if self._process:
            self._process.stop()
            self._process = None

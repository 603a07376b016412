"""What starts and stops: context managers, and those of them that own one process. No knowledge of what runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from typing_extensions import Self

from streaming_app.local.process import Process


class Startable(ABC):
    """As a context manager it runs from the beginning of the block to its end."""

    @abstractmethod
    def start(self) -> None:
        """Start it."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class OwnsProcess(Startable):
    """One that runs as a process of its own, which `start` puts into `_process`."""

    _process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process itself; None while none runs."""
        return self._process.pid if self._process and self._process.exit_code is None else None

    def stop(self) -> None:
        """End the process and wait until it is gone; its files stay. Harmless when none runs."""
        if self._process:
            self._process.stop()
            self._process = None

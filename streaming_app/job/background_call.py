"""Calls that may wait for brokers, in a thread of their own, so that the caller can stop waiting for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class BackgroundCalls:
    """Makes the calls one after the other, always in the same thread: PySpark keeps a connection for each thread.

    A call that nobody waits for any more goes on until it ends by itself, or the process does.
    """

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call `function` after the calls before it; the future gets its result or its exception."""
        future: Future[T] = Future()

        def call() -> None:
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)
            else:
                future.set_result(result)

        self._calls.put(call)
        return future

    def close(self) -> None:
        """End the thread after the calls that were submitted; does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

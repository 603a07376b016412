"""A lock that tells a test that a thread waits for it: the thread has come as far as this, and no further."""

from threading import Event, Lock, Thread

from tests.support.waiting import wait_until


class WatchedLock:
    """A lock with the interface of `threading.Lock`."""

    def __init__(self) -> None:
        self._lock, self._waited_for = Lock(), Event()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT002 - as that of a Lock
        if self._lock.acquire(blocking=False):
            return True
        self._waited_for.set()
        return blocking and self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def holds_up(self, thread: Thread) -> bool:
        """Start a thread; return True if it waits for the lock, which another thread holds, False if it ends."""
        self._waited_for.clear()
        thread.start()
        assert wait_until(lambda: self._waited_for.is_set() or not thread.is_alive())
        return self._waited_for.is_set() and thread.is_alive()

"""Notifies open pages when the tables change: one watcher for all viewers, and server-sent events to each."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable

from streaming_app.job_status import inputs
from streaming_app.report import ReportOnce
from streaming_app.text import utc_iso
from streaming_app.web.page_snapshot import CHECK_SECONDS, Snapshot

_log = logging.getLogger(__name__)
MAX_VIEWERS = 500
HEARTBEAT_SECONDS = 15.0
_RETRY_MS = 2_000


class Live:
    """The viewers of a cluster. Use it from one event loop."""

    def __init__(self, current: Callable[[], Snapshot]) -> None:
        """Watch what `current` returns. A thread calls it, and only while there are viewers."""
        self._current = current
        self.viewers = 0
        """The number of viewers."""
        self._message = ""
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    async def _watch(self) -> None:
        """Check for changes until cancelled."""
        log_error = ReportOnce(_log.error)
        while True:
            try:
                message = message_of(await asyncio.to_thread(self._current))
            except Exception as error:  # noqa: BLE001 - viewers stay connected, and must get the next change
                log_error(f"cannot look for changes, trying again: {type(error).__name__}")
            else:
                log_error.clear()
                if message != self._message:
                    self._message = message
                    self._wake()
            await asyncio.sleep(CHECK_SECONDS)

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def events(self) -> AsyncIterator[str]:
        """Yield server-sent events for one viewer: the current state, and then one after each change."""
        self.viewers += 1
        self._watching = self._watching or asyncio.create_task(self._watch())
        sent = ""
        try:
            yield f"retry: {_RETRY_MS}\n\n"
            while not self._closed:
                changed = self._changed
                if self._message != sent:
                    sent = self._message
                    yield f"data: {sent}\n\n"
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
                except asyncio.TimeoutError:
                    yield "event: alive\ndata:\n\n"  # an event, no SSE comment: scripts do not see comments
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._watching.cancel()
                self._watching = None


def is_full(lives: Iterable[Live]) -> bool:
    """Return whether the limit of viewers is reached."""
    return sum(live.viewers for live in lives) >= MAX_VIEWERS


def message_of(snapshot: Snapshot) -> str:
    """Return the message to a viewer: the tag of the snapshot, and the times that each heartbeat changes."""
    facts = snapshot.heartbeat.facts if snapshot.heartbeat else None
    success = facts.last_success_at if facts else None
    known = {one.name: utc_iso(one.at) for one in inputs(facts) if one.at} if facts else {}
    return json.dumps({"tag": snapshot.tag, "success": utc_iso(success) if success else None, "inputs": known})

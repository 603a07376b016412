"""Tells open pages that the tables have changed: one watcher for all, server-sent events to each."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable

from streaming_app.job_status import inputs
from streaming_app.report import ReportOnce
from streaming_app.text import utc_iso
from streaming_app.web.snapshot import CHECK_SECONDS, Snapshot

_log = logging.getLogger(__name__)
MAX_VIEWERS = 500
HEARTBEAT_SECONDS = 15.0
_RETRY_MS = 2_000


class Live:
    """The viewers of the page. Use it from one event loop."""

    def __init__(self, current: Callable[[], Snapshot]) -> None:
        """Watch what `current` returns. A thread calls it, and only while there are viewers."""
        self._current = current
        self.viewers = 0
        """How many there are."""
        self._message = ""
        self._changed = asyncio.Event()
        self._has_viewers = asyncio.Event()
        self._closed = False

    async def watch(self) -> None:
        """Check for changes until cancelled."""
        log_error = ReportOnce(_log.error)
        while True:
            await self._has_viewers.wait()
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
        """Yield server-sent events for one viewer: the present state, then one after each change."""
        self.viewers += 1
        self._has_viewers.set()
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
                self._has_viewers.clear()


class LiveUpdates:
    """The viewers of each cluster. Use it from one event loop, except `close`."""

    def __init__(self) -> None:
        self._clusters: dict[str, tuple[Live, asyncio.Task[None]]] = {}

    @property
    def is_full(self) -> bool:
        """Whether it accepts no more viewers."""
        return sum(live.viewers for live, _ in self._clusters.values()) >= MAX_VIEWERS

    def of(self, cluster: str, current: Callable[[], Snapshot]) -> Live:
        """Return the viewers of a cluster."""
        if cluster not in self._clusters:
            live = Live(current)
            self._clusters[cluster] = live, asyncio.create_task(live.watch())
        return self._clusters[cluster][0]

    def close(self) -> None:
        """End all streams."""
        for live, _ in self._clusters.values():
            live.close()

    async def stop(self) -> None:
        """End all streams and the checks for changes."""
        self.close()
        watchers = [task for _, task in self._clusters.values()]
        for task in watchers:
            task.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)


def message_of(snapshot: Snapshot) -> str:
    """Return the message to a viewer: the tag of the snapshot, and the times that each heartbeat changes."""
    facts = snapshot.heartbeat.facts if snapshot.heartbeat else None
    success = facts.last_success_at if facts else None
    known = {one.name: utc_iso(one.at) for one in inputs(facts) if one.at} if facts else {}
    return json.dumps({"tag": snapshot.tag, "success": utc_iso(success) if success else None, "inputs": known})

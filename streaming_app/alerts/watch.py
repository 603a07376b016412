"""The loop beside the stream: looks at all groups every few seconds, keeps the alerts, hands them to the sinks.

It runs whether records arrive or not, as most alerts are about what does not happen. A trouble of its own (a table that
cannot be written, say) is told once and tried again at each look; it neither ends the loop nor keeps alerts from their
sinks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Protocol

from streaming_app.alerts.lane import SinkStatus
from streaming_app.alerts.mirror import Mirror
from streaming_app.alerts.store import AlertStore
from streaming_app.core.alert import FIRING, Alert, Delivery
from streaming_app.core.facts import GroupFacts, JobFacts
from streaming_app.core.lifecycle import Book, Manner, advance
from streaming_app.core.rule import Look
from streaming_app.core.rules import TermsOf, evaluate

_STOP = None
_AFTER_FAILURE_SECONDS = 10.0  # until the table is written again: delta-rs is noisy about a full disk
_UPKEEP_EVERY = 100  # commits to the table, each of which leaves a file or two


class Sends(Protocol):
    """What the loop needs of a `Sender`."""

    def offer(self, alerts: tuple[Alert, ...]) -> None:
        """Send what is due of these."""

    def status(self) -> tuple[SinkStatus, ...]:
        """How each sink is doing."""

    def flush(self, timeout: float) -> bool:
        """Wait until everything is sent."""

    def close(self, timeout: float) -> None:
        """End."""


@dataclass(frozen=True)
class Agreed:
    """What the settings say of alerts."""

    cluster: str
    interval: float
    """Seconds between looks."""
    terms_of: TermsOf
    manner: Manner
    descriptions_since: Callable[[Mapping[str, GroupFacts], datetime], datetime | None]
    retention_days: float


class Watch:
    """Looks every few seconds, in a thread of its own, until closed."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing it needs
        self,
        agreed: Agreed,
        mirror: Mirror,
        store: AlertStore,
        job: Callable[[], JobFacts],
        sender: Callable[[Callable[[str, Delivery], None]], Sends],
        say: Callable[[str], None],
        looked: Callable[[tuple[SinkStatus, ...]], None] = lambda _status: None,
    ) -> None:
        """Take up the alerts that the table holds. Raises WarehouseError when it cannot be read.

        `sender` is given what to call after each try; `looked` is told after each look how the sinks are doing.
        """
        self._agreed, self._mirror, self._store, self._job = agreed, mirror, store, job
        self._say, self._looked = say, looked
        self._commits = 0
        self._unsaved: dict[tuple[str, ...], tuple[Alert, bool]] = {}
        held = [self._without_lost_sinks(alert) for alert in store.alerts()]
        self._book = Book.of(held)
        self._telling = {alert.fingerprint: alert for alert in held if _to_be_told(alert)}
        self._results: queue.SimpleQueue[tuple[str, Delivery] | None] = queue.SimpleQueue()
        self._told: set[str] = set()  # troubles since the last look without any
        self._save_at = 0.0
        self._sender = sender(lambda fingerprint, delivery: self._results.put((fingerprint, delivery)))
        self._sender.offer(tuple(self._telling.values()))
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def open_alerts(self) -> tuple[Alert, ...]:
        """What is pending or firing, as of the last look."""
        return tuple(self._book.open.values())

    def sinks(self) -> tuple[SinkStatus, ...]:
        """How each sink is doing."""
        return self._sender.status()

    def finish(self, send_seconds: float) -> None:
        """Look once more, give the sinks so long to take what is due, and end."""
        self._end_thread()
        self._look()
        self._sender.flush(send_seconds)
        self._sender.close(1.0)
        self._note_results()

    def close(self, send_seconds: float) -> None:
        """End without another look; what was not sent will be at the next start."""
        self._end_thread()
        self._sender.close(send_seconds)
        self._note_results()

    def _end_thread(self) -> None:
        self._results.put(_STOP)
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._look()
            look_at = time.monotonic() + self._agreed.interval
            while (left := look_at - time.monotonic()) > 0:
                try:
                    result = self._results.get(timeout=left)
                except queue.Empty:
                    break
                if result is _STOP:
                    return
                self._results.put(result)
                if not self._note_results():
                    return

    def _look(self) -> None:
        """One look. Whatever goes wrong with it, there will be another."""
        seen = self._tried(self._see)
        signed = self._tried(lambda: self._looked(self._sender.status()))
        if seen and signed and not self._unsaved:
            self._told.clear()

    def _tried(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - no trouble of one look may end the loop
            self._tell(error)
            return False
        return True

    def _see(self) -> None:
        """Ask the rules, and let the alerts live on by what they find."""
        self._mirror.refresh()
        now = datetime.now(timezone.utc)
        groups, job = self._mirror.groups(), self._job()
        look = Look(now, self._mirror.all_rebalances(), self._agreed.descriptions_since(groups, now))
        step = advance(
            self._book,
            evaluate(groups.values(), job, look, self._agreed.terms_of),
            cluster=self._agreed.cluster,
            now=now,
            terms_of=self._agreed.terms_of,
            manner=self._agreed.manner,
            caught_up=job.caught_up,
        )
        self._book = step.book
        self._remember(step.gone, dropped=True)
        self._remember(step.changed)
        self._save()  # before they are sent, so that a crash in between loses none
        self._telling |= {alert.fingerprint: alert for alert in step.changed if _to_be_told(alert)}
        self._sender.offer(step.changed)

    def _note_results(self) -> bool:
        """Store what became of notifications, at once: a crash before that would send them again. False: to stop."""
        go_on = True
        while True:
            try:
                result = self._results.get_nowait()
            except queue.Empty:
                break
            if result is _STOP:
                go_on = False
            else:
                self._note(*result)
        self._save()
        return go_on

    def _note(self, fingerprint: str, delivery: Delivery) -> None:
        alert = self._telling.get(fingerprint)
        if alert is None:
            return
        noted = replace(alert, deliveries=tuple(delivery if _same(delivery, d) else d for d in alert.deliveries))
        self._book = self._book.noting(noted)
        self._remember((noted,))
        if _to_be_told(noted):
            self._telling[fingerprint] = noted
        else:
            del self._telling[fingerprint]

    def _without_lost_sinks(self, alert: Alert) -> Alert:
        """Expect nothing any more of a sink that is no longer configured."""
        kept = tuple(d for d in alert.deliveries if d.sent_at or d.sink in self._agreed.manner.sinks)
        if kept == alert.deliveries:
            return alert
        left = replace(alert, deliveries=kept)
        self._remember((left,))
        return left

    def _remember(self, alerts: tuple[Alert, ...], *, dropped: bool = False) -> None:
        for alert in alerts:
            row = (alert.rule, alert.group_id or "", alert.pending_since.isoformat())
            self._unsaved[row] = (alert, dropped)

    def _save(self) -> None:
        """Write what is not written yet. What could not be is remembered, and tried again after a while."""
        if not self._unsaved or time.monotonic() < self._save_at:
            return
        rows = self._unsaved.values()
        try:
            self._store.save((a for a, dropped in rows if not dropped), (a for a, dropped in rows if dropped))
            self._unsaved = {}
            self._commits += 1
            if self._commits % _UPKEEP_EVERY == 0:
                self._store.upkeep(self._agreed.retention_days)
        except Exception as error:  # noqa: BLE001 - delta-rs raises several kinds; people must be told all the same
            self._save_at = time.monotonic() + _AFTER_FAILURE_SECONDS
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        text = f"alerts: {' '.join(str(error).split()) or type(error).__name__}; trying again"
        if text not in self._told:
            self._told.add(text)
            self._say(text)


def _to_be_told(alert: Alert) -> bool:
    """It fires, and may be told again, or some sink has not been told of it."""
    return alert.state == FIRING or any(delivery.sent_at is None for delivery in alert.deliveries)


def _same(one: Delivery, other: Delivery) -> bool:
    return (one.sink, one.event) == (other.sink, other.event)

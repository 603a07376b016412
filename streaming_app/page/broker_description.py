"""Asks a broker for the topology description of a group, when a reader wants it: the page's only request to brokers.

One request a group is in flight, an answer is kept for as long as the group has the same topology epoch, and a failure
for a few seconds, so that impatient readers do not load the brokers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

from streaming_app.kafka.security import read_properties, security_settings
from streaming_app.page.description import AVAILABLE, Described, Fields, described_of
from streaming_app.page.settings import Brokers, PageSettings
from streaming_app.page.source import utc_now

_MAX_KEPT = 500
_RETRY_SECONDS = 5.0
_BOOTSTRAP_MS = 5_000
_GROUP_LOCKS = 64
_MAX_IN_FLIGHT = 4  # requests about different groups


class AskBroker(Protocol):
    """Returns the group's part of a StreamsGroupDescribe response. May raise what kafka-python raises."""

    def __call__(self, group_id: str) -> Fields:
        """Ask."""


class Descriptions:
    """The descriptions that were asked for. Safe to use from several threads."""

    def __init__(
        self,
        ask: AskBroker,
        explain: Callable[[Exception], str],
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """Use `ask` to ask a broker, and `explain` to say in one line why it could not be."""
        self._ask, self._explain, self._clock = ask, explain, clock
        self._kept: OrderedDict[tuple[str, int | None], tuple[Described, float]] = OrderedDict()
        self._group_locks = [threading.Lock() for _ in range(_GROUP_LOCKS)]  # a group always has the same one
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_MAX_IN_FLIGHT)

    def get(self, group_id: str, topology_epoch: int | None) -> Described | None:
        """Return what was answered about this topology of the group; None if nobody has asked."""
        with self._lock:
            kept = self._kept.get((group_id, topology_epoch))
        return kept[0] if kept else None

    def fetch(self, group_id: str, topology_epoch: int | None) -> Described:
        """Return the answer about this topology of the group: the kept one, or a new one."""
        with self._group_locks[hash(group_id) % len(self._group_locks)]:
            with self._lock:
                kept = self._kept.get((group_id, topology_epoch))
            if kept and (kept[0].status == AVAILABLE or time.monotonic() - kept[1] < _RETRY_SECONDS):
                return kept[0]
            with self._slots:
                described = self._answer(group_id)
            with self._lock:
                self._kept[group_id, topology_epoch] = described, time.monotonic()
                while len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
            return described

    def _answer(self, group_id: str) -> Described:
        now = self._clock()
        try:
            return described_of(self._ask(group_id), group_id, now)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reader is told
            return Described(group_id, None, now, None, None, self._explain(error))


def broker_descriptions(settings: PageSettings) -> Descriptions:
    """Return the descriptions of the brokers in the settings. They are connected to at each request, not before."""
    from streaming_app.kafka.client import StreamsGroupClient  # noqa: PLC0415 - a page without brokers does not load it
    from streaming_app.verify.request_errors import REQUEST_ERRORS, error_message  # noqa: PLC0415

    server = settings.bootstrap_server or ""
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)  # errors are raised as exceptions

    def ask(group_id: str) -> Fields:
        with StreamsGroupClient(server, bootstrap_timeout_ms=_BOOTSTRAP_MS, **settings.broker_security) as client:
            (group,) = client.describe([group_id], include_topology_description=True)
        return group

    def explain(error: Exception) -> str:
        if isinstance(error, REQUEST_ERRORS):
            return error_message(error, server, settings.broker_properties)
        return f"{type(error).__name__}: {' '.join(str(error).split())}"

    return Descriptions(ask, explain)


def brokers_of(bootstrap_server: str, command_config: Path | None) -> Brokers:
    """Return the brokers to ask, with the settings in a file of Kafka client properties. Raises SecurityError."""
    properties = read_properties(command_config) if command_config else {}
    return Brokers(bootstrap_server, properties, security_settings(properties))

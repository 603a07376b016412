"""The service that tries groups again that were set aside: at an operator's request, and once after each new release.

The records of such a group are read from the beginning of its partition, as those of a group whose row differs from the
brokers', and its row is replaced by what they give. A group that cannot be folded still is set aside again, with the
reason and this release.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any, Protocol

from streaming_app.job.service import Service
from streaming_app.report import Report
from streaming_app.stream.repair import Repair, RepairResult
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, quote
from streaming_app.tables.request_files import ReleaseRequests
from streaming_app.text import count, escape, first_of, shorten

_POLL_SECONDS = 10.0
_MOST = 100  # groups at a time
_NAMED, _NAME = 5, 60


class Brokers(Protocol):
    """What is asked of brokers."""

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition of a topic."""


class SetAsideGroups(Service):
    """Tries groups again that are set aside, until it is closed."""

    def __init__(
        self,
        warehouse: Location,
        cluster: str,
        connect: Callable[[], AbstractContextManager[Brokers]],
        repair: Repair,
        report: Report,
    ) -> None:
        """`connect` opens a connection to the brokers for one attempt."""
        super().__init__("groups set aside", report, interval=_POLL_SECONDS, after=_POLL_SECONDS)
        self._warehouse, self._cluster = warehouse, cluster
        self._requests = ReleaseRequests(warehouse, cluster)
        self._connect, self._repair = connect, repair
        self._others: list[str] | None = None  # that another release set aside, and are left to try; None: not read yet

    def tick(self) -> None:
        """Try the groups that are due. Raises WarehouseError, JobError, and errors of the brokers and Spark."""
        if self._others is None:
            self._others = self._of_other_releases()
        requested = self._requests.group_ids()
        due = [*dict.fromkeys((*requested, *self._others))][:_MOST]
        done = self._try_again(due) if due else set()
        for group_id in done.intersection(requested):
            self._requests.remove(group_id)
        self._others = [one for one in self._others if one not in done]

    def interrupt(self) -> None:
        """Let no write begin, and wait for one that has begun."""
        self._repair.close()

    def _of_other_releases(self) -> list[str]:
        release = version("streams-groups")
        return sorted(row["group_id"] for row in self._rows() if row["set_aside_release"] != release)

    def _try_again(self, group_ids: list[str]) -> set[str]:
        """Return the groups that were tried: none before a batch is done, as it is not known how far to read."""
        offsets = read_checkpoint_offsets(self._warehouse, self._cluster)
        if offsets is None:
            return set()
        with self._connect() as brokers:
            results = self._repair.repair(
                group_ids, lambda: brokers.end_offsets(offsets.topic), lambda _one, _other: False
            )
        left = {row["group_id"] for row in self._rows()}
        folded = [one for one, result in results.items() if result is RepairResult.REPLACED and one not in left]
        names = first_of([shorten(escape(one), _NAME) for one in group_ids[:_NAMED]], _NAMED, len(group_ids))
        self.report(
            f"set aside: {count(len(group_ids), 'group')} tried again ({names}), of which {len(folded):,} are folded"
        )
        return {one for one, result in results.items() if result is not RepairResult.CHANGED}

    def _rows(self) -> list[dict[str, Any]]:
        return WarehouseReader(self._warehouse).rows(
            "SELECT group_id, set_aside_release FROM groups "  # noqa: S608 - quoted
            f"WHERE cluster = {quote(self._cluster)} AND set_aside_reason IS NOT NULL"
        )

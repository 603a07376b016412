"""Decides which groups are read again: those that an operator releases, and those that another release set aside.

So are groups of Kafka Streams with the classic protocol that have no row, because they are older than this release, or
than the setting `classic_streams`; and those that have one although the setting is off now.

For this the stream starts again, and reads the partitions of these groups from their start (see `stream.start`).
"""

from collections.abc import Iterable
from importlib.metadata import version
from threading import Lock

from streaming_app.job.service import Job
from streaming_app.tables.reader import quote
from streaming_app.tables.request_files import ReleaseRequests

_NEWEST_CLASSIC = """(
  SELECT *, row_number() OVER (PARTITION BY cluster, group_id ORDER BY last_offset DESC) AS place
  FROM group_records WHERE record_type = 2) AS newest"""
_IS_STREAMS = "place = 1 AND NOT deleted AND protocol_type = 'consumer' AND protocol = 'stream'"


class GroupsToReadAgain:
    """The groups that one job must read again. Every method may be called from any thread."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._requests = ReleaseRequests(job.config.warehouse, job.config.cluster)
        self._lock = Lock()
        self._released = set[str]()
        self._has_tried_others = False

    def requested(self) -> set[str]:
        """Return the groups that must be read again now. Raises WarehouseError."""
        released = set(self._requests.group_ids())
        others = set() if self._has_tried_others else self._of_other_releases() | self._of_classic()
        with self._lock:
            self._released |= released
            return self._released | others

    def done(self, group_ids: Iterable[str]) -> None:
        """Note that the stream now reads these groups again. Raises WarehouseError."""
        with self._lock:
            self._has_tried_others = True
            released = self._released.intersection(group_ids)
            self._released -= released
        for group_id in released:
            self._requests.remove(group_id)

    def _of_other_releases(self) -> set[str]:
        of_others = f"set_aside_release IS DISTINCT FROM {quote(version('streams-groups'))}"
        rows = self._job.rows("groups", "group_id", f"set_aside_reason IS NOT NULL AND {of_others}")
        return {row["group_id"] for row in rows}

    def _of_classic(self) -> set[str]:
        """Return the groups of Kafka Streams with the classic protocol that lack a row, or must not have one."""
        known = {
            row["group_id"] for row in self._job.rows("groups", "group_id", "protocol = 'classic' AND state <> 'Dead'")
        }
        if not self._job.config.classic_streams.enabled:
            return known
        return {row["group_id"] for row in self._job.rows(_NEWEST_CLASSIC, "group_id", _IS_STREAMS)} - known

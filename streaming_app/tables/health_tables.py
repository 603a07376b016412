"""The table of verdicts, and the requests of people to end an alert. delta-rs reads and writes it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from streaming_app.chunks import chunks
from streaming_app.errors import WarehouseError
from streaming_app.health.verdict import Verdict, pending_of
from streaming_app.tables.arrow import to_rows
from streaming_app.tables.definitions import table
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.request_files import RequestFiles
from streaming_app.tables.rust_table import RustTable
from streaming_app.text import digest

HISTORY = "group_health_history"
_SUFFIX, _NAME_CHARACTERS = ".json", 24
WRITTEN_ROWS = 20_000
"""Rows per commit: a first evaluation has one row for each group, and there may be a million."""
_LATER = timedelta(microseconds=1)

_NO_LABELS: Mapping[str, str] = MappingProxyType({})  # one object for up to a million groups


class HealthRow(NamedTuple):
    """A row of `group_health_history`; the newest one of a group is its row of `group_health`."""

    group_id: str
    verdict: Verdict
    at: datetime
    """When something in the row changed."""
    labels: Mapping[str, str] = _NO_LABELS
    is_end: bool = False
    """Whether the group, which was deleted, has no verdict from then on."""


class HealthTable:
    """The verdicts of the groups of one cluster."""

    def __init__(self, warehouse: Location | Path, cluster: str, fence: Fence | None = None) -> None:
        self._warehouse = Location.of(warehouse)
        self._history = RustTable(self._warehouse / HISTORY, cluster, fence)
        self._is_certain = False  # False: a failed append may have written rows
        self._newest = dict[str, datetime]()  # of groups whose newest row is later than their verdict

    def rows(self) -> Iterator[HealthRow]:
        """Yield the newest row of each group that has a verdict. Raises WarehouseError."""
        query = f"SELECT * FROM group_health WHERE {self._history.own_rows}"  # noqa: S608 - our own names
        texts, evidence = dict[str, str](), dict[str | None, Mapping[str, Any]]()  # most groups share these values
        for row in chain.from_iterable(map(to_rows, WarehouseReader(self._warehouse).slices(query))):
            if (text := row["evidence"]) not in evidence:
                evidence[text] = json.loads(text or "{}")
            if row["changed_at"] > row["judged_at"]:
                self._newest[row["group_id"]] = row["changed_at"]
            yield HealthRow(
                row["group_id"],
                Verdict(
                    texts.setdefault(row["verdict"], row["verdict"]),
                    row["since"],
                    row["judged_at"],
                    texts.setdefault(row["why"], row["why"]),
                    row["severity"],
                    evidence[text],
                    row["caught_up_at"],
                    row["losing_at"],
                    row["inputs_at"],
                ),
                row["changed_at"],
                row["labels"] or _NO_LABELS,
            )
        self._is_certain = True

    def append(self, rows: Sequence[HealthRow]) -> None:
        """Add rows, each once, also after a call that failed when it had written. Raises OSError.

        A row gets a later time than the one before of its group, so that the newest is the last one.
        """
        newest, later = dict[str, datetime](), list[HealthRow]()
        for row in rows:
            before = newest.get(row.group_id) or self._newest.get(row.group_id)
            # a group that has just been created again may get a verdict that is older than now
            at = row.verdict.at + _LATER if row.is_end else row.at
            at = newest[row.group_id] = at if before is None or at > before else before + _LATER
            later.append(row if at is row.at else row._replace(at=at))
        is_certain, self._is_certain = self._is_certain, False
        for some in chunks(later, WRITTEN_ROWS):
            new = self._history.to_table(map(_to_row, some))
            if is_certain:
                self._history.append(new)
            else:
                self._history.merge(new, _KEY)
        self._is_certain = True
        for row in later:
            if row.at > row.verdict.at and not row.is_end:
                self._newest[row.group_id] = row.at
            else:
                self._newest.pop(row.group_id, None)


_KEY = [name for name in table(HISTORY).key if name != "cluster"]


def _to_row(row: HealthRow) -> dict[str, Any]:
    one = row.verdict
    pending = pending_of(one)
    return {
        "group_id": row.group_id,
        "at": row.at,
        "verdict": one.verdict,
        "severity": one.severity,
        "since": one.since,
        "why": one.why,
        "evidence": json.dumps(one.evidence, default=str),
        "judged_at": one.at,
        "caught_up_at": one.caught_up_at,
        "losing_at": one.losing_at,
        "pending_verdict": pending and pending[0],
        "pending_at": pending and pending[1],
        "inputs_at": one.facts_at,
        "labels": list(row.labels.items()),
        "is_end": row.is_end,
    }


class EndedAlerts:
    """The alerts that persons ended: one file for each command, named by a digest of the alerts' ids."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._files = RequestFiles(warehouse, cluster, "incidents")
        self._known: dict[str, str] = {}
        self._read: set[str] = set()

    def end(self, alert_ids: Sequence[str], reason: str, by: str, at: datetime) -> None:
        """Ask the job to end alerts. Raises WarehouseError."""
        text = json.dumps({"alert_ids": [*alert_ids], "reason": reason, "by": by, "at": at.isoformat()})
        self._files.write(f"{digest(' '.join(alert_ids), _NAME_CHARACTERS)}{_SUFFIX}", f"{text}\n")

    def reasons(self) -> Mapping[str, str]:
        """Return the reason of the person by alert id; files that cannot be read are skipped."""
        with suppress(WarehouseError):
            for name in sorted(name for name in self._files.names() or () if name.endswith(_SUFFIX)):
                if name not in self._read:
                    with suppress(WarehouseError, ValueError, KeyError, TypeError):
                        request = json.loads(self._files.read(name) or "")
                        ids = request["alert_ids"] if "alert_ids" in request else [request["alert_id"]]
                        self._known |= dict.fromkeys(ids, request["reason"])
                        self._read.add(name)
        return self._known

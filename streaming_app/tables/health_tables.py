"""The tables of verdicts, and the requests of people to end a problem. delta-rs reads and writes the tables."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from streaming_app.chunks import chunks
from streaming_app.errors import WarehouseError
from streaming_app.health.board import Change
from streaming_app.health.verdict import Verdict
from streaming_app.tables.arrow import to_rows
from streaming_app.tables.definitions import table
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader
from streaming_app.tables.request_files import RequestFiles
from streaming_app.tables.rust_table import RustTable
from streaming_app.text import digest

HEALTH, HISTORY = "group_health", "group_health_history"
_OF_CHANGE = [name for name in table(HISTORY).key if name != "cluster"]
_SUFFIX, _NAME_CHARACTERS = ".json", 24
_WRITTEN = 20_000  # rows per commit: a first evaluation has one row for each group
_REMOVED = "removed"  # exists only in the source of the merge, which deletes rows with this verdict


_NO_LABELS: Mapping[str, str] = MappingProxyType({})  # one object for up to a million groups


class HealthRow(NamedTuple):
    """A row of `group_health`."""

    group_id: str
    verdict: Verdict
    incident_id: str | None
    inputs_age: int | None
    labels: Mapping[str, str] = _NO_LABELS


class HealthTables:
    """The verdicts of the groups of one cluster. Methods that write raise OSError."""

    def __init__(self, warehouse: Location | Path, cluster: str, fence: Fence | None = None) -> None:
        self._warehouse = Location.of(warehouse)
        names = (HEALTH, HISTORY)
        self._tables = {name: RustTable(self._warehouse / name, cluster, fence) for name in names}
        self._is_new = False  # True: no verdict is stored, so rows are appended, which is faster than to merge them
        self._is_certain = False  # False: an earlier run, or a failed append, may have written changes

    def rows(self) -> Iterator[HealthRow]:
        """Yield the stored rows. Raises WarehouseError."""
        columns = ", ".join(f'"{column}"' for column in table(HEALTH).names)
        query = f"SELECT {columns} FROM {HEALTH} WHERE {self._tables[HEALTH].own_rows}"  # noqa: S608 - our own names
        texts, evidence = dict[str, str](), dict[str | None, Mapping[str, Any]]()  # most groups share these values
        self._is_new = self._is_certain = True
        for row in chain.from_iterable(map(to_rows, WarehouseReader(self._warehouse).slices(query))):
            self._is_new = self._is_certain = False
            if (text := row["evidence"]) not in evidence:
                evidence[text] = json.loads(text or "{}")
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
                row["incident_id"],
                row["inputs_age"],
                row["labels"] or _NO_LABELS,
            )

    def save(self, rows: Iterable[HealthRow], gone: Collection[str], now: datetime) -> None:
        """Insert or update these rows; delete the rows of groups in `gone`."""
        health = self._tables[HEALTH]
        is_new, self._is_new = self._is_new, False
        for some in chunks(rows, _WRITTEN):
            if is_new:
                health.append(health.to_table([_to_row(one, now) for one in some if one.group_id not in gone]))
            else:
                new = [_to_row(one, now, is_gone=one.group_id in gone) for one in some]
                health.merge(health.to_table(new), ["group_id"], f"s.verdict = '{_REMOVED}'")

    def append_changes(self, changes: Sequence[Change]) -> None:
        """Add verdict changes to the history, each once, even if an earlier call failed after it had written."""
        if not changes:
            return
        is_certain, self._is_certain = self._is_certain, False
        for some in chunks(changes, _WRITTEN):
            of_changes = [{**_common(one.verdict), "at": one.at, "group_id": one.group_id} for one in some]
            history = self._tables[HISTORY]
            rows = history.to_table(of_changes)
            if is_certain:
                history.append(rows)
            else:
                history.merge(rows, _OF_CHANGE)
        self._is_certain = True


def _common(one: Verdict) -> dict[str, Any]:
    evidence = json.dumps(one.evidence, default=str)
    return {
        "verdict": one.verdict,
        "severity": one.severity,
        "since": one.since,
        "why": one.why,
        "evidence": evidence,
    }


def _to_row(row: HealthRow, now: datetime, *, is_gone: bool = False) -> dict[str, Any]:
    one = row.verdict
    return {
        "group_id": row.group_id,
        **_common(replace(one, verdict=_REMOVED) if is_gone else one),
        "judged_at": one.at,
        "caught_up_at": one.caught_up_at,
        "losing_at": one.losing_at,
        "incident_id": row.incident_id,
        "labels": list(row.labels.items()),
        "inputs_at": one.facts_at,
        "inputs_age": None if one.facts_at is None else max(0, round((now - one.facts_at).total_seconds())),
    }


class EndedProblems:
    """The problems that persons ended: one file for each command, named by a digest of the problems' ids."""

    def __init__(self, warehouse: Location | Path, cluster: str) -> None:
        self._files = RequestFiles(warehouse, cluster, "incidents")
        self._known: dict[str, str] = {}
        self._read: set[str] = set()

    def end(self, alert_ids: Sequence[str], reason: str, by: str, at: datetime) -> None:
        """Ask the job to end problems. Raises WarehouseError."""
        text = json.dumps({"alert_ids": [*alert_ids], "reason": reason, "by": by, "at": at.isoformat()})
        self._files.write(f"{digest(' '.join(alert_ids), _NAME_CHARACTERS)}{_SUFFIX}", f"{text}\n")

    def reasons(self) -> Mapping[str, str]:
        """Return the reason of the person by problem id; files that cannot be read are skipped."""
        with suppress(WarehouseError):
            for name in sorted(name for name in self._files.names() or () if name.endswith(_SUFFIX)):
                if name not in self._read:
                    with suppress(WarehouseError, ValueError, KeyError, TypeError):
                        request = json.loads(self._files.read(name) or "")
                        ids = request["alert_ids"] if "alert_ids" in request else [request["alert_id"]]
                        self._known |= dict.fromkeys(ids, request["reason"])
                        self._read.add(name)
        return self._known

"""Keeps handles of tables in an object store, because opening a table there costs dozens of requests.

Theory of operation
-------------------
To open a table, delta-rs lists its log, and reads the last checkpoint and each later commit. To find the transaction of
an application, it reads all of these again. So this module keeps a handle, and checks whether its version is still the
newest: the commit of this version must exist with the same content, and the next commit must not exist. Versions have
no gaps, and no two commits have the same content. So if both hold, the handle is up to date, and nothing else is read.
If there is a next commit, delta-rs reads what is new. In every other case (the table was deleted, created again or
restored from a copy, its log was cleaned up, a request failed) the table is opened again.

A job alone changes the rows of its cluster, and knows what it has written. So when it reads it does not check the
handle again for `KNOWN_SECONDS`: until then it may not know what others have done. Commands and the page always check.

Readers share a handle. A writer takes the handle for itself: what the writer has checked (see `fence` and `BatchId`)
must hold for the version on which its commit is based, so nobody else may update the handle. After an error the handle
is dropped, since the commit may have succeeded.

The newest transaction of an application is known from the first read, and from the content of later commits.

A table in a local directory is opened each time, which takes ten milliseconds, except by a job that reads: it keeps a
handle as well, and checks it each time, which takes a tenth of one.

A commit that another one has overtaken is repeated, and no other. delta-rs raises the same error for each that fails: a
store may refuse the request, or another tool has given the table a feature that delta-rs cannot write. Then every
attempt fails. A commit can only be overtaken by another one, so the version of the table decides.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock
from time import monotonic
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_when_event_set, wait_random
from tenacity.nap import sleep_using_event

from streaming_app.tables.location import Location
from streaming_app.tables.object_store import MANY_BYTES, read_file

KNOWN_SECONDS = 120.0
"""For how long a job reads from a handle that was up to date: each check is two requests."""
_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)
"""By table; held while the handle is taken, updated for a reader, or put back."""
_KEPT: dict[str, KeptTable] = {}
_FEW_COMMITS = 10  # each is a request; to find a transaction in all of the log takes dozens
_OPENED = set[str]()
"""Tables that were opened once, without keeping a handle, as commands do."""
_ATTEMPTS = 12  # jobs for other clusters also cause conflicts
_PAUSE_SECONDS = 0.05, 0.5


class ConflictError(CommitFailedError):
    """Another commit came after the version on which this one was based."""


class KeptTable:
    """A table at one version, and the transactions of it that are known."""

    def __init__(self, location: Location, *, is_kept: bool = True) -> None:
        """Open the newest version. Only a handle that `is_kept` can be checked later.

        Raises deltalake's TableNotFoundError, or errors for `describe_error`.
        """
        self._location = location
        self.table = location.delta_table()
        self._version = self.table.version()
        self._transactions: dict[str, int | None] = {}
        self._content: bytes | None = None
        """A hash of the commit of this version; None: not known, so the handle cannot be kept."""
        self.checked_at = monotonic()
        if is_kept:
            with suppress(Exception):  # without the hash the table is usable, but each use opens it again
                self._content = _digest(self.commit(self._version))

    def transaction_version(self, app_id: str) -> int | None:
        """Return the version of the newest transaction of an application, as `DeltaTable.transaction_version` does."""
        if app_id not in self._transactions:
            self._transactions[app_id] = self.table.transaction_version(app_id)
        return self._transactions[app_id]

    def commit_info(self, version: int) -> dict[str, Any]:
        """Return the `commitInfo` of a commit; empty if its file is gone. Raises OSError.

        The history of delta-rs is empty if the path contains `#` (deltalake 1.6).
        """
        found = _actions(self.commit(version) or b"", "commitInfo")
        return found[0] if found else {}

    @property
    def can_be_kept(self) -> bool:
        """Whether a later check can find out that this version is still the newest."""
        return self._content is not None

    def is_up_to_date(self) -> bool:
        """Update the handle to the newest version; return whether that was possible."""
        now = monotonic()
        try:
            if _digest(self.commit(self._version)) != self._content:
                return False
            if self.commit(self._version + 1, 1) is None:
                self.checked_at = now
                return True
            self.table.update_incremental()
            return self.table.version() > self._version and self.note_commits()
        except Exception:  # noqa: BLE001 - delta-rs raises several types; opening the table again names the cause
            return False

    @contextmanager
    def conflicts(self) -> Iterator[None]:
        """Raise ConflictError instead of the error of a commit to this version that another one has overtaken."""
        try:
            yield
        except CommitFailedError as error:
            try:
                is_overtaken = self._location.delta_table().version() != self._version
            except (DeltaError, OSError):  # the error of the commit says more
                is_overtaken = False
            if is_overtaken:
                raise ConflictError(str(error)) from None
            raise

    def note_commits(self) -> bool:
        """Note the version after a write or an update; return whether the handle can be kept."""
        version = self.table.version()
        if version == self._version:
            return self.can_be_kept
        new = range(self._version + 1, version + 1)
        commits = [self.commit(one) for one in new[-_FEW_COMMITS:]]
        self._content = _digest(commits[-1])
        is_whole = len(commits) == len(new) and None not in commits
        self._transactions = {
            app: number
            for known in (self._transactions, *(_transactions(one or b"") for one in commits))
            for app, number in known.items()
            if is_whole
        }
        self._version, self.checked_at = version, monotonic()
        return self.can_be_kept

    def commit(self, version: int, size: int = MANY_BYTES) -> bytes | None:
        """Return the first `size` bytes of the commit of a version; None if there is none. One GET. Raises OSError."""
        name = f"_delta_log/{version:020}.json"
        try:
            if self._location.is_local:
                with (self._location / name).path.open("rb") as file:
                    return file.read(size)
            return read_file(self.table, name, size)
        except FileNotFoundError:
            return None


def newest_table(location: Location, known_for: float = 0.0) -> DeltaTable:
    """Return the newest version of the table, for reading. Other readers share the handle, and may update it.

    So later reads from the handle may see later versions; DataFusion keeps the version that it got. In a store, a
    handle that was up to date within the last `known_for` seconds is not checked. Raises as `Location.delta_table`.
    """
    key = str(location)
    if location.is_local and not known_for:
        return location.delta_table()
    with _LOCKS[key]:
        kept = _KEPT.get(key)
        is_known = kept is not None and not location.is_local and monotonic() - kept.checked_at < known_for
        if kept is not None and (is_known or kept.is_up_to_date()):
            return kept.table
        _KEPT.pop(key, None)
        if key not in _OPENED and not location.is_local:
            _OPENED.add(key)
            return location.delta_table()
        kept = KeptTable(location)
        if kept.can_be_kept:
            _KEPT[key] = kept
        return kept.table


def doubt(location: Location) -> None:
    """Let the next reader of a table check the handle: another one may have changed it."""
    key = str(location)
    with _LOCKS[key]:
        if kept := _KEPT.get(key):
            kept.checked_at = -math.inf


@contextmanager
def table_to_write(location: Location) -> Iterator[KeptTable]:
    """Give the newest version of the table; nobody else uses it until the block ends. Raises as `newest_table` does."""
    if location.is_local:
        yield KeptTable(location, is_kept=False)
        return
    key = str(location)
    with _LOCKS[key]:
        kept = _KEPT.pop(key, None)
    if kept is None or not kept.is_up_to_date():
        kept = KeptTable(location)
    yield kept
    try:
        can_be_kept = kept.note_commits()
    except Exception:  # noqa: BLE001 - as above; the commit itself succeeded
        return
    with _LOCKS[key]:
        if can_be_kept:
            _KEPT[key] = kept


def repeating(stop: Event | None = None) -> Retrying:
    """Return what calls a function again after a ConflictError, with pauses; not for ever, nor once `stop` is set."""
    stop = stop or Event()
    return Retrying(
        retry=retry_if_exception_type(ConflictError),
        stop=stop_after_attempt(_ATTEMPTS) | stop_when_event_set(stop),
        wait=wait_random(*_PAUSE_SECONDS),
        sleep=sleep_using_event(stop),
        reraise=True,
    )


def _digest(content: bytes | None) -> bytes | None:
    return None if content is None else hashlib.sha256(content).digest()


def _transactions(commit: bytes) -> dict[str, int | None]:
    return {one["appId"]: one["version"] for one in _actions(commit, "txn")}


def _actions(commit: bytes, name: str) -> list[dict[str, Any]]:
    lines = (line for line in commit.splitlines() if f'"{name}"'.encode() in line)
    return [action[name] for action in map(json.loads, lines) if name in action]

"""Finds out whether a table was set back: by a copy of it, or by Delta's RESTORE, also one that the log no longer has.

Theory of operation
-------------------
A RESTORE adds a version, in which the files are those of an earlier one. Jobs of other clusters add versions, too, and
one of them may clean up the log, which then no longer has the RESTORE. So versions prove nothing about the rows of a
cluster. Its files do: only its own job replaces them, as a file has rows of one cluster. And each commit of the job
carries, as a Delta transaction, how many commits of the job there were. A RESTORE keeps transactions.

So the job notes after its commits this number, and a hash of the names of the files. Later, if both are the same, the
table was not set back. If not, the commits since then are read, one after the other, until they explain the
difference: those that a job made before it was killed, or those of another tool that compacted the files. If one is a
RESTORE, if one is gone, or if there are too many, the table counts as set back. Then the topic is read again, which
loses nothing.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import unquote

from deltalake import DeltaTable

from streaming_app.tables.data_files import CLUSTER
from streaming_app.tables.group_files import stored_files
from streaming_app.tables.kept_table import KeptTable

_MOST_COMMITS = 200
"""That are read: each is a request."""
_HASHES = 1 << 64


class OwnFiles(NamedTuple):
    """The files of one cluster in a version of a table."""

    version: int
    changes: int | None = None
    """The number of commits that the jobs of the cluster made; None: not known, as in the state of 0.3."""
    hash: int | None = None
    """The sum of the hashes of the files' names."""


def changes_of(cluster: str) -> str:
    """Return the id of the transactions that count the commits of a cluster's jobs."""
    return f"changes-{cluster}"


def own_files(kept: KeptTable, cluster: str, changes: int | None = None) -> OwnFiles:
    """Return the files of a cluster in the current version, after so many `changes` if they are known.

    Raises delta-rs' errors.
    """
    if changes is None:
        changes = kept.transaction_version(changes_of(cluster)) or 0
    return OwnFiles(kept.table.version(), changes, hash_of(kept.table, cluster))


def hash_of(table: DeltaTable, cluster: str) -> int:
    """Return the sum of the hashes of the names of a cluster's files. Raises delta-rs' errors."""
    return _hash(one.path for one in stored_files(table, cluster))


def are_set_back(kept: KeptTable, cluster: str, known: OwnFiles, now: OwnFiles) -> bool:
    """Return whether the files `now` come not from those that were `known` before. Raises OSError."""
    if known[1:] == now[1:]:
        return False
    commits = (_actions(kept, version) for version in range(known.version + 1, now.version + 1)[:_MOST_COMMITS])
    if known.changes is None or known.hash is None:
        return now.version < known.version or any(map(_is_restore, commits))
    changes, files = known.changes, known.hash
    if now.version <= known.version or (now.changes or 0) < changes:
        return True
    for actions in commits:
        if not actions or _is_restore(actions):
            return True
        files += _hash(_paths(actions, "add", cluster)) - _hash(_paths(actions, "remove", cluster))
        numbers = (one["txn"]["version"] for one in actions if one.get("txn", {}).get("appId") == changes_of(cluster))
        changes = next(numbers, changes)
        if (changes, files % _HASHES) == now[1:]:
            return False
    return True


def _actions(kept: KeptTable, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (kept.commit(version) or b"").splitlines()]


def _is_restore(actions: Iterable[Mapping[str, Any]]) -> bool:
    return any(one.get("commitInfo", {}).get("operation") == "RESTORE" for one in actions)


def _paths(actions: Iterable[Mapping[str, Any]], kind: str, cluster: str) -> list[str]:
    found = (one[kind] for one in actions if kind in one)
    return [unquote(one["path"]) for one in found if (one.get("partitionValues") or {}).get(CLUSTER) == cluster]


def _hash(paths: Iterable[str]) -> int:
    """Return the sum for the files with these paths: one that an upgrade moves keeps its name."""
    digests = (blake2b(path.rpartition("/")[2].encode(), digest_size=8).digest() for path in paths)
    return sum(int.from_bytes(digest, "big") for digest in digests) % _HASHES

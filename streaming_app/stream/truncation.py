"""What a cut log does to the tables: history of records that no longer exist is marked, rows of their partition go.

It is done before anything is read again, and any number of times: a job that dies meanwhile finds the same cuts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from streaming_app.tables.reader import query_table, quote
from streaming_app.tables.rust_table import Commit, RustTable

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streaming_app.stream.log_positions import Cut
    from streaming_app.tables.fence import Fence
    from streaming_app.tables.location import Location

LOG_TRUNCATED = "log_truncated"
"""The kind of the events in `group_events`."""
VOIDED = {"group_events": "source_partition", "quarantine": "partition"}
"""The tables whose rows are marked, and their columns of the partition."""
NOT_VOID = "(void IS NULL OR void = false)"
"""The condition that the record of a row is in the log, as far as is known."""
_EVENTS = "group_events"
_EVENTS_LOCK = Lock()  # both streams find a cut, and one of them tells of it


def void_history(
    warehouse: Location,
    cluster: str,
    cuts: Iterable[Cut],
    own_rows: Mapping[str, str],
    fence: Fence | None = None,
) -> None:
    """Mark the rows of history tables that came from the records of the cuts; `own_rows` are the stream's, in SQL.

    Raises OSError if a table cannot be written, and OtherOwnerError, as all that write here with a `fence`.
    """
    for name, column in VOIDED.items():
        condition = " OR ".join(_is_of(cut, column, "offset") for cut in cuts)
        where = f"cluster = {quote(cluster)} AND ({own_rows[name]}) AND {NOT_VOID} AND ({condition})"
        if query_table(warehouse / name, f"SELECT 1 FROM t WHERE {where} LIMIT 1").num_rows:  # noqa: S608 - quoted
            RustTable(warehouse / name, cluster, fence).change(partial(_set_void, where))


def _set_void(where: str, target: DeltaTable, commit: Commit) -> None:
    target.update(updates={"void": "true"}, predicate=where, **commit)


def delete_topologies(warehouse: Location, cluster: str, cuts: Iterable[Cut], fence: Fence | None = None) -> None:
    """Delete the topologies that only these records hold: a group that still has one writes it again."""
    condition = " OR ".join(_is_of(cut, "source_partition", "offset") for cut in cuts)
    RustTable(warehouse / "topologies", cluster, fence).delete(condition)


def affected_groups(warehouse: Location, cluster: str, tables: Collection[str], cut: Cut) -> list[str]:
    """Return the groups whose rows in these tables came from records of the cut, or may lack something of them."""
    rows_of = f"source_partition = {cut.partition}" if cut.unread else _is_of(cut, "source_partition", "last_offset")
    condition = f"cluster = {quote(cluster)} AND {rows_of}"
    found: set[str] = set()
    for name in tables:
        rows = query_table(warehouse / name, f"SELECT DISTINCT group_id FROM t WHERE {condition}")  # noqa: S608 - quoted
        found |= set(rows["group_id"].to_pylist())
    return sorted(found)


def add_truncation_events(
    warehouse: Location, cluster: str, cut: Cut, group_ids: Sequence[str], fence: Fence | None = None
) -> None:
    """Append an event for each group that has none about this cut."""
    with _EVENTS_LOCK:
        # A start that did not come to its end may have written them, in an earlier epoch than that of now.
        last = -1 if cut.epoch is None else cut.epoch
        same = f'source_partition = {cut.partition} AND "offset" = {cut.start} AND log_epoch > {last}'
        query = f"SELECT group_id FROM t WHERE cluster = {quote(cluster)} AND kind = '{LOG_TRUNCATED}' AND {same}"  # noqa: S608 - quoted
        written = query_table(warehouse / _EVENTS, query)["group_id"].to_pylist()
        rows = [_event(group_id, cut) for group_id in sorted(set(group_ids) - set(written))]
        if rows:
            events = RustTable(warehouse / _EVENTS, cluster, fence)
            events.append(events.to_table(rows))


def _event(group_id: str, cut: Cut) -> dict[str, Any]:
    log = f"{cut.topic}-{cut.partition}"
    old, new = f"{log} up to offset {cut.end - 1}", f"{log} up to offset {cut.start - 1}"
    if cut.unread:
        old, new = f"{log} from offset {cut.start}", f"{log} from offset {cut.end}"
    return {
        "group_id": group_id,
        "at": datetime.fromisoformat(cut.found_at),
        "kind": LOG_TRUNCATED,
        "old": old,
        "new": new,
        "source_partition": cut.partition,
        "offset": cut.start,
        "log_epoch": cut.new_epoch,
        "void": False,
    }


def _is_of(cut: Cut, partition_column: str, offset_column: str) -> str:
    """Return the condition that a row is of a record of the cut, and not of one that has its offset since."""
    older = "" if cut.epoch is None else f" OR log_epoch <= {cut.epoch}"
    offsets = f'"{offset_column}" >= {cut.start} AND "{offset_column}" < {cut.end}'
    return f"({partition_column} = {cut.partition} AND {offsets} AND (log_epoch IS NULL{older}))"

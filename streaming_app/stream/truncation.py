"""What a cut log changes in the tables: history rows of records that no longer exist are marked, state rows deleted.

This happens before anything is read again, and can be repeated: if the job dies meanwhile, it finds the same cuts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from threading import Lock

from streaming_app.groups.group import READ_AGAIN
from streaming_app.stream.log_positions import Cut
from streaming_app.tables.writer import TableWriter

LOG_TRUNCATED = "log_truncated"
"""The kind of the events in `group_events`."""
VOIDED = {"group_events": "source_partition", "quarantine": "partition"}
"""The tables whose rows are marked, and their partition columns."""
NOT_VOID = "(void IS NULL OR void = false)"
"""SQL condition: as far as is known, the record of the row is in the log."""
_EVENTS_LOCK = Lock()  # both streams find a cut, but only one of them writes the events


def tell_of_cuts(
    writer: TableWriter,
    cuts: Sequence[Cut],
    state: Collection[str],
    own_rows: Mapping[str, str],
    *,
    has_topologies: bool,
) -> None:
    """Mark the history rows of records that no longer exist, and add events. The `state` rows must still exist.

    Raises OSError if a table cannot be written, and OtherOwnerError, as all functions here that write.
    """
    for cut in cuts:
        add_truncation_events(writer, cut, affected_groups(writer, state, cut))
    if read := [cut for cut in cuts if not cut.unread]:
        void_history(writer, read, own_rows)
        if has_topologies:
            delete_topologies(writer, read)


def void_history(writer: TableWriter, cuts: Iterable[Cut], own_rows: Mapping[str, str]) -> None:
    """Mark the history rows that came from the records of the cuts; `own_rows`: the stream's rows, in SQL."""
    for name, column in VOIDED.items():
        condition = " OR ".join(_is_of(cut, column, "offset") for cut in cuts)
        writer.table(name).update({"void": "true"}, f"({own_rows[name]}) AND {NOT_VOID} AND ({condition})")


def delete_topologies(writer: TableWriter, cuts: Iterable[Cut]) -> None:
    """Delete the topologies that only these records hold: a group that still has one writes it again."""
    writer.table("topologies").delete(" OR ".join(_is_of(cut, "source_partition", "offset") for cut in cuts))


def affected_groups(writer: TableWriter, tables: Collection[str], cut: Cut) -> set[str]:
    """Return the groups whose rows in these tables came from records of the cut, or may lack some of them."""
    found = (writer.table(name).select("DISTINCT group_id", rows_of(cut, name)) for name in tables)
    return {group_id for rows in found for group_id in rows["group_id"].to_pylist()}


def add_truncation_events(writer: TableWriter, cut: Cut, group_ids: Collection[str]) -> None:
    """Append an event for each group that has none for this cut."""
    events = writer.table("group_events")
    with _EVENTS_LOCK:
        # An earlier start that was interrupted may have written them, with a lower epoch than the current one.
        last = -1 if cut.epoch is None else cut.epoch
        same = f'source_partition = {cut.partition} AND "offset" = {cut.start} AND log_epoch > {last}'
        written = events.select("group_id", f"kind = '{LOG_TRUNCATED}' AND {same}")["group_id"].to_pylist()
        log = f"{cut.topic}-{cut.partition}"
        old, new = f"{log} up to offset {cut.end - 1}", f"{log} up to offset {cut.start - 1}"
        if cut.unread:
            old, new = f"{log} from offset {cut.start}", f"{log} from offset {cut.end}"
        event = {
            "at": datetime.fromisoformat(cut.found_at),
            "kind": LOG_TRUNCATED,
            "old": old,
            "new": new,
            "source_partition": cut.partition,
            "offset": cut.start,
            "log_epoch": cut.new_epoch,
            "void": False,
        }
        if rows := [{**event, "group_id": group_id} for group_id in sorted(set(group_ids) - set(written))]:
            events.append(events.to_table(rows))


def rows_of(cut: Cut, table: str = "groups") -> str:
    """Return the SQL condition for rows that came from records of the cut, or may lack some of them.

    A row that is being read again does not say from which records it came, or which facts it keeps of the earlier row.
    """
    if cut.unread:
        return of_partition(cut)
    facts = " OR known_before IS NOT NULL" if table == "groups" else ""
    again = f"{of_partition(cut)} AND (last_offset <= {READ_AGAIN}{facts})"
    return f"({_is_of(cut, 'source_partition', 'last_offset')} OR ({again}))"


def of_partition(cut: Cut) -> str:
    """Return the SQL condition for rows of the cut partition."""
    return f"source_partition = {cut.partition}"


def _is_of(cut: Cut, partition_column: str, offset_column: str) -> str:
    """Return the SQL condition that a row is of a record of the cut, and not of a later record with the same offset."""
    older = "" if cut.epoch is None else f" OR log_epoch <= {cut.epoch}"
    offsets = f'"{offset_column}" >= {cut.start} AND "{offset_column}" < {cut.end}'
    return f"({partition_column} = {cut.partition} AND {offsets} AND (log_epoch IS NULL{older}))"

"""Decides where a query starts and what it reads again: the topic is compacted and small, and has the current state.

Theory of operation
-------------------
A record next to the checkpoint names the topic and the `groups` table. Offsets of a topic that was deleted and created
again start from 0. So the job refuses another topic than the one in the record, unless `--reset` is given. If nothing
has changed, the job resumes from the checkpoint. Otherwise it reads again:

| what the start finds | partitions to read | rows that no longer count |
| --- | --- | --- |
| no record, or it names other tables or another topic | all | all |
| no checkpoint, or it is damaged or does not fit the tables (see `table_versions`) | all | all |
| more partitions than before | all | all |
| the job was away for so long that tombstones may be gone | all | all |
| the log was cut (see `log_positions`) | that partition | rows of records that no longer exist |
| records were deleted before the job read them | that partition | all of the partition |
| groups differ from the brokers', or are released after they were set aside | of these groups | of these groups |

A new query with a new checkpoint reads these partitions from their start, and continues in the others. A row that
counts skips the records that it contains. A row that does not count is marked by `READ_AGAIN`. It stays until the first
record of its group replaces it; the new row keeps the facts that only the old row proves (see `groups.read_again`).
When the query reaches the ends of the partitions, it deletes the remaining marked rows: their groups have no records
any more. Rows of records that no longer exist are deleted at once.

The history (`history_tables`) stays, except for the rows that `truncation` marks as void. It reaches up to
`StartPosition.history_offsets`. Up to there the query writes no events again, since the compacted log may give others.

The job may die after each step. From before the first change until after the last one the record names no rows. So a
job that was killed in between reads everything again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from streaming_app.errors import OtherTopicError
from streaming_app.groups.group import READ_AGAIN
from streaming_app.groups.partition import partition_of
from streaming_app.groups.read_again import marked
from streaming_app.job_status import is_too_long
from streaming_app.kafka.offsets_topic import check_topic_id
from streaming_app.stream.log_positions import NO_CUT, LogCheck
from streaming_app.stream.source import EARLIEST
from streaming_app.stream.table_versions import TableVersions
from streaming_app.stream.truncation import LOG_TRUNCATED, NOT_VOID, VOIDED, of_partition, rows_of, tell_of_cuts
from streaming_app.tables.checkpoint_offsets import find_damage, newest_batch_ends
from streaming_app.tables.definitions import Table, history_tables
from streaming_app.tables.group_files import group_files, ranges
from streaming_app.tables.location import Location
from streaming_app.tables.reader import quote, time_literal
from streaming_app.text import count, escape, first_of, shorten

if TYPE_CHECKING:
    from streaming_app.kafka.offsets_topic import OffsetsTopic
    from streaming_app.stream.log_positions import Cut
    from streaming_app.tables.rust_table import RustTable
    from streaming_app.tables.writer import TableWriter

_ROWS = "groups"  # a key of the record: the identity of the groups table
_NO_ROWS = ""  # its value while the start is being prepared
_SOURCE = ("cluster_id", "topic", "topic_id")
_STARTING = "starting"  # a key of the record: where a query without a checkpoint starts
_UNTIL = "until"  # a key of the record, see `StartPosition`
_OWN_ROWS = {
    "group_events": f"kind NOT IN ('group_type', '{LOG_TRUNCATED}')",
    "quarantine": "key IS NULL OR key >= X'0011' OR error_kind IN ('UnfoldableRecord', 'LeftoverRecord')",
}
"""The history rows that the query of the groups wrote: the other query may be further in the topic."""
_ALL, _IS_MARKED = "true", f"last_offset <= {READ_AGAIN}"
_MARKED_BYTES = 16 << 20  # of files per commit
_STAYS = "reading from the beginning; the history stays"
_NAMED, _NAME = 5, 60  # groups in a line, and characters of each

Offsets = Mapping[int, int]
"""By partition of the topic."""


@dataclass(frozen=True)
class StartPosition:
    """Where a query starts; `message` is for users."""

    message: str
    from_beginning: bool = False
    """Everything is read again, and no record has been read yet."""
    history_offsets: Mapping[str, Offsets] = field(default_factory=dict)
    """By table, the highest offsets in it."""
    partitions_grew: bool = False
    """The topic once had fewer partitions, see `FoldOptions`."""
    read_again: frozenset[int] = frozenset()
    """The partitions to read from their start."""
    starting: Offsets = field(default_factory=dict)
    """Where to begin in each partition if there is no checkpoint; empty: at the start of all."""
    until: dict[int, int] = field(default_factory=dict)
    """Rows that are still marked when these offsets are reached are deleted: nothing has replaced them."""


@dataclass(frozen=True)
class QueryTables:
    """The tables that a query writes, and their properties that its start needs."""

    name: str
    """The table with rows of this topic; its identity is in the record."""
    has_rows: Callable[[], bool]
    delete: Callable[[str], object]
    """Deletes the rows that match a condition."""
    outdate: Callable[[str], object]
    """Marks the rows that match a condition: they no longer count."""
    versions: TableVersions
    own_rows: Mapping[str, str]
    """SQL condition for the history rows that the query wrote, by table."""
    state: tuple[str, ...]
    """The tables with a row for the newest records of a key, and their offset columns."""
    history: tuple[Table, ...] = ()
    skips_known: bool = False
    """Rows skip the records that they contain. If False, records that are read again are appended again."""
    finish: Callable[[], object] = lambda: None
    """Called once the query has read again all records from which the earlier rows were made."""


def group_tables(writer: TableWriter, checkpoint: Location) -> QueryTables:
    """Return the tables of the query that folds streams groups."""
    groups = writer.table("groups")

    return QueryTables(
        name="groups",
        has_rows=lambda: not writer.is_empty("groups"),
        delete=groups.delete,
        outdate=partial(_mark, groups),
        finish=partial(_finish, groups),
        versions=TableVersions(writer, checkpoint),
        own_rows=_OWN_ROWS,
        state=("groups",),
        history=history_tables(),
        skips_known=True,
    )


def prepare_start(  # noqa: PLR0913 - each is one thing it needs
    writer: TableWriter,
    checkpoint: Location,
    topic: OffsetsTopic,
    *,
    reset: bool,
    away: timedelta | None,
    tables: QueryTables | None = None,
    log: LogCheck = NO_CUT,
    groups: Collection[str] = (),
) -> StartPosition:
    """Make checkpoint, tables and topic consistent. By default `tables` are those of the groups.

    `log` says whether the log still has all that was read. `groups` are read again. `away` is how long ago the job was
    last at the end of the topic; None (not known) counts as too long. Raises OtherTopicError if the topic is not the
    earlier one and `reset` is not given.
    """
    tables = tables or group_tables(writer, checkpoint)
    file = _record_file(checkpoint)
    known = _read(file) or {}
    record: dict[str, Any] = {"cluster_id": topic.cluster_id, "topic": topic.name, "topic_id": topic.topic_id}
    is_other = bool(known) and any(known.get(name) != record[name] for name in _SOURCE)
    if is_other and not reset:
        advice = "Give another --cluster, or --reset to drop the rows of the groups and read from the beginning"
        raise OtherTopicError(f"{_difference(known, record)} {advice}; the history stays")
    before = {} if is_other else known
    grew = topic.partitions > before.get("partitions", topic.partitions)
    record |= {"partitions": topic.partitions, "partitions_grew": grew or bool(before.get("partitions_grew"))}
    identity, restored = writer.identity(tables.name), tables.versions.restored()
    reason: str | None = ""
    if is_other:
        reason = "another topic than before, reading from the beginning"
    elif not reset and before.get(_ROWS) == identity and _is_complete(checkpoint):
        grown = f"the topic now has {topic.partitions} partitions, {_STAYS}" if grew else None
        reason = grown or _mismatch(tables.versions, restored, checkpoint) or _too_long(away, topic)
    if reason is None and log.is_whole and not groups:
        writer.check_owner()
        record |= {_ROWS: identity, _UNTIL: _until(known, topic)}
        return _resume(file, checkpoint, {**known, **record}, tables)

    cuts = () if is_other else log.cuts
    read_again = frozenset(range(topic.partitions))
    if reason is None:
        read_again = frozenset(
            {cut.partition for cut in cuts} | {partition_of(one, topic.partitions) for one in groups}
        )
    tell_of_cuts(writer, cuts, tables.state, tables.own_rows, has_topologies=bool(tables.history))
    record |= _history(writer, tables.history, known, topic, is_other=is_other, restored=restored, cuts=cuts)
    _add_committed(record["history"], log.committed if before.get(_ROWS) == identity else {}, restored, cuts)
    had_rows = tables.has_rows()
    is_kept = had_rows and not reset and tables.skips_known
    until = {one: topic.end_offsets[one] for one in read_again if is_kept and _has_records(topic, one)}
    record[_UNTIL] = until
    record[_STARTING] = {}
    if reason is None:
        record[_STARTING] = _starting(log, before, topic, read_again)
        record[_UNTIL] = {**_until(before, topic), **until}  # keep ends that an earlier reading has not reached yet
    writer.check_owner()  # the fence cannot keep a paused job from removing the checkpoint of its successor
    _write(file, {**record, _ROWS: _NO_ROWS})
    tables.versions.forget()
    checkpoint.remove_directory()
    if had_rows:
        _outdate(tables, cuts, groups, reason, at_once=not until)
    tables.versions.write()  # so that the loss of a table during the first batch is also noticed
    _write(file, {**record, _ROWS: identity})
    if reason is None:
        return _position(record, _partly(cuts, groups), read_again=read_again)
    message = reason or "reading from the beginning"
    if not reason and (had_rows or any(record["history"].values())):
        message += " again; the history stays"
    message = f"{_lost(cuts)}; {message}" if cuts else message
    return _position(record, message, from_beginning=True, read_again=read_again)


def finish_reading(writer: TableWriter, checkpoint: Location, position: StartPosition, ends: Offsets | None) -> bool:
    """If a batch with these ends finishes the reading, delete the remaining marked rows; return whether it does."""
    if not position.until or not _is_reached(position.until, ends):
        return False
    _finish(writer.table("groups"))
    file = _record_file(checkpoint)
    _write(file, {**(_read(file) or {}), _UNTIL: {}})
    return True


def _resume(file: Location, checkpoint: Location, record: dict[str, Any], tables: QueryTables) -> StartPosition:
    if (until := _offsets(record, _UNTIL)) and _is_reached(until, newest_batch_ends(checkpoint).committed):
        tables.finish()  # the earlier job ended before this step
        record[_UNTIL] = {}
    _write(file, record)
    begun = "commits" in checkpoint.names()
    return _position(record, "resuming from the checkpoint" if begun else "reading from the beginning")


def _mark(groups: RustTable, condition: str) -> None:
    """Mark the rows of groups that match, some files at a time: delta-rs holds in memory all that a commit rewrites."""
    left = f"({condition}) AND (last_offset IS NULL OR last_offset > {READ_AGAIN})"
    mark = {"last_offset": f"{marked(0)} - coalesce(last_offset, -1)"}
    for span in ranges(group_files(groups.open(), groups.cluster), _MARKED_BYTES):
        limits = [f"group_id {sign} {quote(id_)}" for sign, id_ in ((">=", span.first), ("<=", span.last)) if id_]
        groups.update(mark, " AND ".join([left, *limits]))
    groups.update(mark, left)  # the rows in files whose ranges are shortened in the log


def _finish(groups: RustTable) -> None:
    """Delete the remaining marked rows, and the facts kept of rows whose offset the log does not reach."""
    groups.delete(_IS_MARKED)
    groups.update({"known_before": "NULL"}, "known_before IS NOT NULL")


def _outdate(
    tables: QueryTables, cuts: Sequence[Cut], groups: Collection[str], reason: str | None, *, at_once: bool
) -> None:
    """Mark the rows that no longer count; with `at_once` delete them."""
    lost = [rows_of(cut) if tables.skips_known else of_partition(cut) for cut in cuts if not cut.unread]
    if lost:
        tables.delete(" OR ".join(lost))
    outdated = [of_partition(cut) for cut in cuts if cut.unread]
    if groups:
        outdated.append(f"group_id IN ({', '.join(map(quote, groups))})")
    condition = _ALL if reason is not None else " OR ".join(outdated)
    if condition:
        (tables.delete if at_once else tables.outdate)(condition)


def _starting(log: LogCheck, known: Mapping[str, Any], topic: OffsetsTopic, again: Collection[int]) -> Offsets:
    """Return where to begin: at the start of partitions to read again, after the last commit in the others."""
    ends = log.committed or _offsets(known, _STARTING)
    return {one: EARLIEST if one in again else ends.get(one, EARLIEST) for one in range(topic.partitions)}


def _partly(cuts: Sequence[Cut], groups: Collection[str]) -> str:
    if groups and not cuts:
        names = first_of([shorten(escape(one), _NAME) for one in sorted(groups)[:_NAMED]], _NAMED, len(groups))
        return f"reading the records of {count(len(groups), 'group')} again ({names}); the history stays"
    if not cuts:
        return "the last batch was started but ends beyond the log, resuming before it"
    partitions = "this partition" if len(cuts) == 1 else "these partitions"
    is_void = "" if all(cut.unread for cut in cuts) else ", its lost part marked as void"
    return f"{_lost(cuts)}: reading {partitions} again; the history stays{is_void}"


def _lost(cuts: Sequence[Cut]) -> str:
    return f"the log no longer has {shorten('; '.join(map(str, cuts)), 500)}"


def check_same_topic(checkpoint: Location, topic: OffsetsTopic) -> None:
    """Raise OtherTopicError if the topic is not the one with which the job started."""
    if known := _read(_record_file(checkpoint)):
        check_topic_id(topic.name, known["topic_id"], topic.topic_id)


def _is_complete(checkpoint: Location) -> bool:
    """Return whether a checkpoint is complete: if it was deleted while the job ran, it has only newer files."""
    return {"metadata", "offsets"} <= set(checkpoint.names())


def _mismatch(versions: TableVersions, restored: Sequence[str], checkpoint: Location) -> str | None:
    """Return why checkpoint and tables do not fit together; None if they do."""
    if damage := find_damage(checkpoint):
        return f"the checkpoint is damaged, {damage}; {_STAYS}"
    if restored:
        return f"lost or restored since: {', '.join(restored)}; {_STAYS}"
    beyond = versions.beyond()
    return f"the checkpoint is older than {', '.join(beyond)}; {_STAYS}" if beyond else None


def _too_long(away: timedelta | None, topic: OffsetsTopic) -> str | None:
    """Return a text if tombstones that the job has not read may be gone; else None."""
    retention = timedelta(milliseconds=topic.delete_retention_ms)
    if not is_too_long(away, retention):
        return None
    if away is None:
        return f"not known when the job was last at the end of the topic: {_STAYS}"
    why = f"last at the end of the topic {_hours(away)} ago, and tombstones are removed after {_hours(retention)}"
    return f"{why}: {_STAYS}"


def _history(  # noqa: PLR0913 - each is one thing it needs
    writer: TableWriter,
    tables: Sequence[Table],
    known: Mapping[str, Any],
    topic: OffsetsTopic,
    *,
    is_other: bool,
    restored: Sequence[str],
    cuts: Sequence[Cut],
) -> dict[str, Any]:
    """Return up to where the history reaches, and since when it belongs to this topic.

    For a `restored` table it may reach less far. In a cut partition no table reaches further than the remaining
    records. Offsets of a deleted topic mean nothing for a new topic with its name. If the record was lost, offsets
    beyond the end of the topic are those of another topic.
    """
    if is_other:
        ends = (writer.table(one.name).select(f"max({one.expires_by})").column(0)[0].as_py() for one in tables)
        newest = max(filter(None, ends), default=None)
        return {"history": {}, "history_after": newest and newest.isoformat()}
    after = known.get("history_after")
    kept = {name: reached for name, reached in known.get("history", {}).items() if name not in restored}
    offsets = {}
    left = {cut.partition: cut.start - 1 for cut in cuts if not cut.unread}
    for one in tables:
        conditions = [f"({_OWN_ROWS.get(one.name, 'true')})", *([NOT_VOID] if one.name in VOIDED else [])]
        if after:
            conditions.append(f"{one.expires_by} > {time_literal(datetime.fromisoformat(after))}")
        columns = f'"{one.partition_column}", max("offset")'
        reached = writer.table(one.name).select(columns, " AND ".join(conditions), "GROUP BY 1").columns
        pairs = zip(*(column.to_pylist() for column in reached), strict=True)
        fits = {p: offset for p, offset in pairs if offset < topic.end_offsets.get(p, 0)}
        earlier = {int(p): offset for p, offset in kept.get(one.name, {}).items()}
        highest = {p: max(fits.get(p, -1), earlier.get(p, -1)) for p in fits.keys() | earlier.keys()}
        offsets[one.name] = {p: min(offset, left.get(p, offset)) for p, offset in highest.items()}
    return {"history": offsets, "history_after": after}


def _add_committed(
    history: Mapping[str, dict[int, int]], committed: Offsets, restored: Collection[str], cuts: Sequence[Cut]
) -> None:
    """Extend the history to the committed batches, since a record may leave no event.

    The highest offset in a table may be lower than the offsets that were read. A copy of a record that compaction left
    beyond it would then give its events again.
    """
    lost = {cut.partition for cut in cuts}
    for name, reached in history.items():
        if name not in restored:
            reached |= {p: max(reached.get(p, -1), end - 1) for p, end in committed.items() if end and p not in lost}


def _position(
    record: Mapping[str, Any], message: str, *, from_beginning: bool = False, read_again: frozenset[int] = frozenset()
) -> StartPosition:
    return StartPosition(
        message,
        from_beginning,
        {name: _offsets(record.get("history", {}), name) for name in record.get("history", {})},
        record["partitions_grew"],
        read_again,
        _offsets(record, _STARTING),
        _offsets(record, _UNTIL),
    )


def _offsets(record: Mapping[str, Any], name: str) -> dict[int, int]:
    """Return offsets by partition; JSON has the partitions as text."""
    return {int(partition): offset for partition, offset in record.get(name, {}).items()}


def _until(known: Mapping[str, Any], topic: OffsetsTopic) -> dict[int, int]:
    """Return up to where partitions are read again: at most to the end of the log, which may have been cut since."""
    return {p: min(end, topic.end_offsets.get(p, end)) for p, end in _offsets(known, _UNTIL).items()}


def _has_records(topic: OffsetsTopic, partition: int) -> bool:
    return topic.end_offsets.get(partition, 0) > topic.start_offsets.get(partition, 0)


def _is_reached(until: Offsets, ends: Offsets | None) -> bool:
    return ends is not None and all(ends.get(partition, 0) >= end for partition, end in until.items())


def _hours(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours:.0f} h" if hours >= 1 else f"{time.total_seconds():.0f} s"


def _record_file(checkpoint: Location) -> Location:
    return Location(f"{checkpoint}.topic.json")


def _read(file: Location) -> dict[str, Any] | None:
    text = file.find_text()
    try:
        known = None if text is None else json.loads(text)
    except ValueError:
        return None
    return known if isinstance(known, dict) else None


def _write(file: Location, record: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(record))


def _difference(known: Mapping[str, Any], now: Mapping[str, str]) -> str:
    if known.get("cluster_id") != now["cluster_id"]:
        return f"This is Kafka cluster {now['cluster_id']}, and the tables are of cluster {known.get('cluster_id')}."
    if known.get("topic") != now["topic"]:
        return f"This is topic {now['topic']}, and the tables are of topic {known.get('topic')}."
    return f"Topic {now['topic']} was deleted and created again since the job last ran."

"""Where the job starts: it resumes from the checkpoint, reads from the beginning, or refuses.

Theory of operation
-------------------
Rows and checkpoint hold offsets of one topic of one cluster, and a topic that is deleted and created again counts from
0. So a record next to the checkpoint names the topic, and another one is refused unless `--reset` is given.

The record also names the `groups` table. A checkpoint of other rows (the table was deleted and created again, or the
checkpoint was copied from another warehouse or cluster) would leave out what these rows have not seen. Such a
checkpoint is dropped, as one that is missing, and the job reads from the beginning.

Reading from the beginning drops the rows of the groups. The log may have been compacted since they were written, and
tombstones are removed after `delete.retention.ms`, so members and groups that are gone would stay in the rows for ever.
For the same reason a job that was away for longer than that reads from the beginning, too.

A checkpoint that is past its tables, or behind them, since one was restored, is dropped, too (see `table_versions`).

The history (`history_tables`) stays as it is. `StartPosition.history_offsets` is how far it reaches; what the log shows
again up to there, after compaction perhaps otherwise, is left out. It is part of the record, so that a job that is
killed while it reads again does not append twice.

Where an unclean election cut the log of a partition (see `log_positions`), only that partition is read again: its rows
are dropped, and the new query reads the others on from where the checkpoint was. History of records that no longer
exist is marked, and what the log now has at their offsets is added. Where records were deleted before they were read,
the same is done, and no history is marked.

Each step can be the last one: the record names no rows from before the first change until after the last one, so a job
that is killed in between starts over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from streaming_app.errors import OtherTopicError
from streaming_app.job_status import is_too_long
from streaming_app.kafka.offsets_topic import check_topic_id
from streaming_app.stream.log_positions import NO_CUT, LogCheck
from streaming_app.stream.source import EARLIEST
from streaming_app.stream.table_versions import TableVersions
from streaming_app.stream.truncation import (
    LOG_TRUNCATED,
    NOT_VOID,
    VOIDED,
    add_truncation_events,
    affected_groups,
    delete_topologies,
    void_history,
)
from streaming_app.tables.checkpoint_offsets import find_damage
from streaming_app.tables.definitions import Table, history_tables
from streaming_app.tables.location import Location
from streaming_app.text import shorten

if TYPE_CHECKING:
    from streaming_app.kafka.offsets_topic import OffsetsTopic
    from streaming_app.stream.log_positions import Cut
    from streaming_app.tables.files import Files
    from streaming_app.tables.writer import TableWriter

_ROWS = "groups"  # in the record: the identity of the groups table
_NO_ROWS = ""  # its value while the start is being prepared
_SOURCE = ("cluster_id", "topic", "topic_id")

_STARTING = "starting"  # in the record: where a query without a checkpoint starts
_OWN_ROWS = {
    "group_events": f"kind NOT IN ('group_type', '{LOG_TRUNCATED}')",
    "quarantine": "key IS NULL OR key >= X'0011' OR error_kind IN ('UnfoldableRecord', 'LeftoverRecord')",
}
"""The rows of history tables that the query of the groups wrote: the other query may be further in the topic."""

HistoryOffsets = Mapping[str, Mapping[int, int]]
"""By table and partition of the topic, the highest offset that the table holds."""


@dataclass(frozen=True)
class StartPosition:
    """Where the job starts; `message` says it to people."""

    message: str
    from_beginning: bool
    """The rows were dropped, and no record was read since."""
    history_offsets: HistoryOffsets = field(default_factory=dict)
    partitions_grew: bool = False
    """The topic had fewer partitions once, see `FoldOptions`."""
    cut: frozenset[int] = frozenset()
    """The partitions whose rows were dropped, to be read again from their start."""
    starting: Mapping[int, int] = field(default_factory=dict)
    """Where each partition begins if there is no checkpoint; none: all of them from their start."""


@dataclass(frozen=True)
class QueryTables:
    """The tables that a query writes, as far as where it starts depends on them."""

    name: str
    """The table with rows of this topic; its identity is in the record."""
    has_rows: Callable[[], bool]
    delete_rows: Callable[[Collection[int] | None], None]
    """Deletes the rows that must not be there when these partitions, or all, are read from the beginning."""
    versions: TableVersions
    own_rows: Mapping[str, str]
    """The rows of history tables that the query wrote, in SQL."""
    state: tuple[str, ...]
    """The tables with a row for what the newest records say, and their offsets."""
    history: tuple[Table, ...] = ()


def group_tables(writer: TableWriter, checkpoint: Location) -> QueryTables:
    """Return the tables of the query that folds streams groups."""
    return QueryTables(
        name="groups",
        has_rows=lambda: not writer.is_empty("groups"),
        delete_rows=writer.delete_groups,
        versions=TableVersions(writer, checkpoint),
        own_rows=_OWN_ROWS,
        state=("groups",),
        history=history_tables(),
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
) -> StartPosition:
    """Make checkpoint, tables and topic fit each other. `tables` are those of the groups by default.

    `log` says whether what was read is still there. `away` is how long ago the job was last at the end of the topic,
    None if that is not known: too long, then. Raises OtherTopicError when the topic is another one than
    before and `reset` is not given.
    """
    tables = tables or group_tables(writer, checkpoint)
    files, file = writer.files, _record_file(checkpoint)
    known = _read(files, file)
    now = {"cluster_id": topic.cluster_id, "topic": topic.name, "topic_id": topic.topic_id}
    is_other = known is not None and any(known.get(name) != now[name] for name in _SOURCE)
    if is_other and not reset:
        advice = "Give another --cluster, or --reset to drop the rows of the groups and read from the beginning"
        raise OtherTopicError(f"{_difference(known or {}, now)} {advice}; the history stays")
    identity = writer.identity(tables.name)
    grew = bool(known and not is_other and topic.partitions > known.get("partitions", topic.partitions))
    # A directory that was deleted while the job ran has only what was written after that.
    is_lost = not (files.exists(checkpoint / "metadata") and files.exists(checkpoint / "offsets"))
    damage = None if is_lost else find_damage(checkpoint)
    restored = tables.versions.restored()
    beyond = [] if is_lost or damage else tables.versions.beyond()
    reason = _reason_to_read_again(
        known,
        identity,
        reset=reset or is_lost,
        is_other=is_other,
        grew=grew,
        mismatch=f"the checkpoint is damaged, {damage}" if damage else _mismatch(restored, beyond),
        topic=topic,
        away=away,
    )
    record = {
        **now,
        "partitions": topic.partitions,
        "partitions_grew": grew or bool(known and not is_other and known.get("partitions_grew")),
    }
    cuts = () if is_other else log.cuts
    if reason is None and known is not None and log.is_whole:
        _write(files, file, {**known, **record, _ROWS: identity})
        if files.exists(checkpoint / "commits"):
            return _position(known, record, "resuming from the checkpoint", from_beginning=False)
        return _position(known, record, "reading from the beginning", from_beginning=False)
    if cuts:
        _void(writer, tables, cuts)
    history = _history(writer, tables.history, known, topic, is_other=is_other, restored=restored, cuts=cuts)
    cut = frozenset(one.partition for one in cuts)
    is_partly = reason is None
    history[_STARTING] = _starting(log, known or {}, topic, cut) if is_partly else {}
    _write(files, file, {**record, **history, _ROWS: _NO_ROWS})
    tables.versions.forget()
    files.remove(checkpoint)
    had_rows = tables.has_rows()
    if had_rows and (cut or not is_partly):
        tables.delete_rows(cut if is_partly else None)
    tables.versions.write()  # a table that is lost before the first batch is done must be recognized, too
    _write(files, file, {**record, **history, _ROWS: identity})
    if is_partly:
        return _position(history, record, _partly(cuts), from_beginning=False, cut=cut)
    message = reason or "reading from the beginning"
    if not reason and (had_rows or any(history["history"].values())):
        message += " again; the history stays"
    return _position(history, record, f"{_lost(cuts)}; {message}" if cuts else message, from_beginning=True)


def _void(writer: TableWriter, tables: QueryTables, cuts: Sequence[Cut]) -> None:
    """Let the history say what of it came from records that no longer exist. The rows of groups are still there."""
    place, cluster, fence = writer.location, writer.cluster, writer.fence
    for cut in cuts:
        add_truncation_events(place, cluster, cut, affected_groups(place, cluster, tables.state, cut), fence)
    if read := [cut for cut in cuts if not cut.unread]:
        void_history(place, cluster, read, tables.own_rows, fence)
        if tables.history:
            delete_topologies(place, cluster, read, fence)


def _starting(log: LogCheck, known: Mapping[str, Any], topic: OffsetsTopic, cut: Collection[int]) -> dict[str, int]:
    """Return where each partition begins: those that were cut at their start, others after what was committed."""
    earlier = {int(partition): offset for partition, offset in known.get(_STARTING, {}).items()}
    ends = log.committed or earlier
    return {str(one): EARLIEST if one in cut else ends.get(one, EARLIEST) for one in range(topic.partitions)}


def _partly(cuts: Sequence[Cut]) -> str:
    if not cuts:
        return "the last batch was begun and ends beyond the log, resuming before it"
    partitions = "this partition" if len(cuts) == 1 else "these partitions"
    void = "" if all(cut.unread for cut in cuts) else ", and says which of it is void"
    return f"{_lost(cuts)}: reading {partitions} again; the history stays{void}"


def _lost(cuts: Sequence[Cut]) -> str:
    return f"the log no longer has {shorten('; '.join(map(str, cuts)), 500)}"


def check_same_topic(files: Files, checkpoint: Location, topic: OffsetsTopic) -> None:
    """Raise OtherTopicError if the topic is no longer the one that the job started with."""
    known = _read(files, _record_file(checkpoint))
    if known is not None:
        check_topic_id(topic.name, known["topic_id"], topic.topic_id)


def _reason_to_read_again(  # noqa: PLR0913 - each is one of the conditions
    known: Mapping[str, Any] | None,
    identity: str,
    *,
    reset: bool,
    is_other: bool,
    grew: bool,
    mismatch: str,
    topic: OffsetsTopic,
    away: timedelta | None,
) -> str | None:
    """Return why the job reads from the beginning, empty where there is nothing to say; None if it may resume."""
    if is_other:
        return "another topic than before, reading from the beginning"
    if reset or known is None or known.get(_ROWS) != identity:
        return ""
    if grew:
        return f"the topic now has {topic.partitions} partitions, reading from the beginning; the history stays"
    if mismatch:
        return f"{mismatch}; reading from the beginning; the history stays"
    retention = timedelta(milliseconds=topic.delete_retention_ms)
    if not is_too_long(away, retention):
        return None
    if away is None:
        why = "not known when the job was last at the end of the topic"
    else:
        why = f"last at the end of the topic {_hours(away)} ago, and tombstones are removed after {_hours(retention)}"
    return f"{why}: reading from the beginning; the history stays"


def _mismatch(restored: Sequence[str], beyond: Sequence[str]) -> str:
    """Return in which way tables are older than the checkpoint, or newer; empty if they fit."""
    if restored:
        return f"lost or restored since: {', '.join(restored)}"
    return f"the checkpoint is older than {', '.join(beyond)}" if beyond else ""


def _history(  # noqa: PLR0913 - each is one thing it needs
    writer: TableWriter,
    tables: Sequence[Table],
    known: Mapping[str, Any] | None,
    topic: OffsetsTopic,
    *,
    is_other: bool,
    restored: Sequence[str],
    cuts: Sequence[Cut],
) -> dict[str, Any]:
    """Return how far the history reaches, and since when it is of this topic. A `restored` table reaches less far.

    In a partition that was cut no table reaches further than the records that are left.

    Offsets of a topic that was deleted mean nothing for the new one of that name. Those that the record cannot tell
    apart, since it was lost, are beyond the end of the topic.
    """
    if is_other:
        ends = [writer.newest(one.name, str(one.expires_by)) for one in tables]
        newest = max((end for end in ends if end), default=None)
        return {"history": {}, "history_after": newest and newest.isoformat()}
    after = known.get("history_after") if known else None
    since = datetime.fromisoformat(after) if after else None
    kept = {name: reached for name, reached in (known or {}).get("history", {}).items() if name not in restored}
    offsets = {}
    left = {cut.partition: cut.start - 1 for cut in cuts if not cut.unread}
    for one in tables:
        own_rows = _OWN_ROWS.get(one.name, "true")
        if one.name in VOIDED:
            own_rows = f"({own_rows}) AND {NOT_VOID}"
        reached = writer.highest_offsets(
            one.name, str(one.partition_column), str(one.expires_by), since, where=own_rows
        )
        fits = {p: offset for p, offset in reached.items() if offset < topic.end_offsets.get(p, 0)}
        earlier = {int(p): offset for p, offset in kept.get(one.name, {}).items()}
        highest = {p: max(fits.get(p, -1), earlier.get(p, -1)) for p in fits.keys() | earlier.keys()}
        offsets[one.name] = {p: min(offset, left.get(p, offset)) for p, offset in highest.items()}
    return {"history": offsets, "history_after": after}


def _position(
    known: Mapping[str, Any],
    record: Mapping[str, Any],
    message: str,
    *,
    from_beginning: bool,
    cut: frozenset[int] = frozenset(),
) -> StartPosition:
    history = {
        name: {int(partition): offset for partition, offset in offsets.items()}
        for name, offsets in known.get("history", {}).items()
    }
    starting = {int(partition): offset for partition, offset in known.get(_STARTING, {}).items()}
    return StartPosition(message, from_beginning, history, record["partitions_grew"], cut, starting)


def _hours(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours:.0f} h" if hours >= 1 else f"{time.total_seconds():.0f} s"


def _record_file(checkpoint: Location) -> Location:
    return Location(f"{checkpoint}.topic.json")


def _read(files: Files, file: Location) -> dict[str, Any] | None:
    text = files.read(file)
    try:
        known = None if text is None else json.loads(text)
    except ValueError:
        return None
    return known if isinstance(known, dict) else None


def _write(files: Files, file: Location, record: Mapping[str, Any]) -> None:
    files.write(file, json.dumps(record))


def _difference(known: Mapping[str, Any], now: Mapping[str, str]) -> str:
    if known.get("cluster_id") != now["cluster_id"]:
        return f"This is Kafka cluster {now['cluster_id']}, and the tables are of cluster {known.get('cluster_id')}."
    if known.get("topic") != now["topic"]:
        return f"This is topic {now['topic']}, and the tables are of topic {known.get('topic')}."
    return f"Topic {now['topic']} was deleted and created again since the job last ran."

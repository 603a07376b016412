"""Decides where a query starts and what it reads again: the topic is compacted and small, and has the current state.

Theory of operation
-------------------
The state of the stream (see `stream_state`) names the topic and the `groups` table. Offsets of a topic that was deleted
and created again start from 0. So the job refuses another topic than the one in the state, unless `--reset` is given.
If nothing has changed, the job resumes from the checkpoint. Otherwise it reads again:

| what the start finds | partitions to read | rows that no longer count |
| --- | --- | --- |
| state, checkpoint, tables and topic do not fit together (see `ANSWERS`) | all | all |
| the log was cut (see `log_positions`) | that partition | rows of records that no longer exist |
| records were deleted before the job read them | that partition | all of the partition |
| groups differ from the brokers', or are released after they were set aside | of these groups | of these groups |

A new query with a new checkpoint reads these partitions from their start, and continues in the others. A row that
counts skips the records that it contains. A row that does not count is marked by `READ_AGAIN`. It stays until the first
record of its group replaces it; the new row keeps the facts that only the old row proves (see `groups.marked_rows`).
When the query reaches the ends of the partitions, it deletes the remaining marked rows: their groups have no records
any more. Rows of records that no longer exist are deleted at once.

The history (`history_tables`) stays, except for the rows that `truncation` marks as void. It reaches up to
`StreamState.history`. Up to there the query writes no events again, since the compacted log may give others.

The job may die after each step. From before the first change until after the last one the state names no rows. So a
job that was killed in between reads everything again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import NamedTuple

from streaming_app.errors import OtherTopicError
from streaming_app.groups.events import OF_COMMITS, OF_TOPICS
from streaming_app.groups.group import READ_AGAIN
from streaming_app.groups.marked_rows import marked
from streaming_app.groups.partition import partition_of
from streaming_app.kafka.offsets_topic import OffsetsTopic
from streaming_app.stream.log_positions import NO_CUT, Cut, LogCheck
from streaming_app.stream.source import EARLIEST
from streaming_app.stream.stream_state import Offsets, StateFile, StreamState
from streaming_app.stream.table_versions import TableVersions
from streaming_app.stream.truncation import LOG_TRUNCATED, NOT_VOID, VOIDED, of_partition, rows_of, tell_of_cuts
from streaming_app.tables.checkpoint_offsets import find_damage, newest_batch_ends
from streaming_app.tables.definitions import Table, history_tables
from streaming_app.tables.group_files import group_files, ranges
from streaming_app.tables.location import Location
from streaming_app.tables.reader import quote, time_literal
from streaming_app.tables.rust_table import RustTable
from streaming_app.tables.writer import TableWriter
from streaming_app.text import count, escape, first_of, shorten

_OWN_ROWS = {
    "group_events": f"kind NOT IN ({', '.join(map(quote, (*OF_COMMITS, *OF_TOPICS, LOG_TRUNCATED)))})",
    "quarantine": "key IS NULL OR key >= X'0011' OR error_kind IN ('UnfoldableRecord', 'LeftoverRecord')",
}
"""The history rows that the query of the groups wrote: the other query may be further in the topic."""
_ALL, _IS_MARKED = "true", f"last_offset <= {READ_AGAIN}"
_MARKED_BYTES = 16 << 20  # of files per commit
_STAYS = "reading from the beginning; the history stays"
_NAMED, _NAME = 5, 60  # groups in a line, and characters of each


class StartPosition(NamedTuple):
    """Where a query starts."""

    message: str
    state: StreamState
    from_beginning: bool = False
    """Everything is read again, and no record has been read yet."""
    read_again: frozenset[int] = frozenset()
    """The partitions to read from their start."""


@dataclass(frozen=True)
class QueryTables:
    """The tables that a query writes, and their properties that its start needs."""

    writer: TableWriter
    names: tuple[str, ...]
    """The tables with a row for the newest records of a key; the identity of the first one is in the state."""
    mark: Callable[[str], object]
    """Marks the rows that match a condition: they no longer count."""
    versions: TableVersions
    own_rows: Mapping[str, str]
    """SQL condition for the history rows that the query wrote, by table."""
    history: tuple[Table, ...] = ()
    skips_known: bool = False
    """Rows skip the records that they contain. If False, all rows whose records will be read again are marked."""
    also_finish: Callable[[], object] = lambda: None
    """Called once the query has read again all records from which the earlier rows were made."""

    def delete(self, condition: str) -> None:
        """Delete the rows that match a condition."""
        for name in self.names:
            self.writer.table(name).delete(condition)


@dataclass(frozen=True)
class Found:
    """What a start finds of state, checkpoint, tables and topic."""

    known: StreamState
    topic: OffsetsTopic
    checkpoint: Location
    versions: TableVersions
    identity: str
    """Of the table with the rows."""
    away: timedelta | None
    """How long ago the job was last at the end of the topic; None: not known."""
    reset: bool

    @property
    def is_other(self) -> bool:
        """Whether the state is of another topic."""
        return bool(self.known.topic_id and self.difference)

    @property
    def difference(self) -> str | None:
        """How the topic differs from the one of the state."""
        known, topic = self.known, self.topic
        if known.cluster_id != topic.cluster_id:
            return f"This is Kafka cluster {topic.cluster_id}, and the tables are of cluster {known.cluster_id}."
        if known.topic != topic.name:
            return f"This is topic {topic.name}, and the tables are of topic {known.topic}."
        is_same = known.topic_id == topic.topic_id
        return None if is_same else f"Topic {topic.name} was deleted and created again since the job last ran."

    @property
    def has_grown(self) -> bool:
        """Whether the topic has more partitions than before."""
        return not self.is_other and 0 < self.known.partitions < self.topic.partitions

    @cached_property
    def restored(self) -> list[str]:
        """The tables that are older than the state, or not the same as then."""
        return self.versions.restored()


def _if(condition: object, reason: str = "", end: str = "; ") -> str | None:
    if not condition:
        return None
    return f"{reason}{end}{_STAYS}" if reason else ""


ANSWERS: dict[str, Callable[[Found], str | None]] = {
    "the state is of another topic, with --reset": lambda one: (
        "another topic than before, reading from the beginning" if one.is_other else None
    ),
    "--reset is given": lambda one: _if(one.reset),
    "the state is missing, or both copies are damaged": lambda one: _if(not one.known.topic_id),
    "the state is that of a start which was killed": lambda one: _if(not one.known.rows),
    "the state is of rows that were lost": lambda one: _if(one.known.rows != one.identity),
    # If it was deleted while the job ran, it has only newer files.
    "there is no checkpoint, or only a part": lambda one: _if(not {"metadata", "offsets"} <= {*one.checkpoint.names()}),
    "the topic has more partitions": lambda one: _if(
        one.has_grown, f"the topic now has {one.topic.partitions} partitions", ", "
    ),
    "the checkpoint is damaged": lambda one: _if(
        damage := find_damage(one.checkpoint), f"the checkpoint is damaged, {damage}"
    ),
    "the state is newer than the tables": lambda one: _if(
        one.restored, f"lost or restored since: {', '.join(one.restored)}"
    ),
    "the checkpoint is older than the tables": lambda one: _if(
        beyond := one.versions.beyond(), f"the checkpoint is older than {', '.join(beyond)}"
    ),
    "tombstones may be gone": lambda one: _too_long(one.away, timedelta(milliseconds=one.topic.delete_retention_ms)),
}
"""By what is found, why everything is read again: the reason to tell, empty for "reading from the beginning", or None.

The first one counts. If there is none, also if the state is only older than the tables, the job resumes.
"""


def _too_long(away: timedelta | None, retention: timedelta) -> str | None:
    """Return a text if tombstones that the job has not read may be gone; else None."""
    if away is not None and away <= retention:
        return None
    why = "not known when the job was last at the end of the topic"
    if away is not None:
        why = f"last at the end of the topic {_hours(away)} ago, and tombstones are removed after {_hours(retention)}"
    return f"{why}: {_STAYS}"


def _hours(time: timedelta) -> str:
    hours = time.total_seconds() / 3600
    return f"{hours:.0f} h" if hours >= 1 else f"{time.total_seconds():.0f} s"


def group_tables(writer: TableWriter, checkpoint: Location, state: StateFile) -> QueryTables:
    """Return the tables of the query that folds streams groups."""
    groups = writer.table("groups")

    return QueryTables(
        writer,
        ("groups",),
        mark=partial(_mark, groups),
        # The facts kept of rows whose offset the log does not reach.
        also_finish=partial(groups.update, {"known_before": "NULL"}, "known_before IS NOT NULL"),
        versions=TableVersions(writer, checkpoint, state),
        own_rows=_OWN_ROWS,
        history=history_tables(),
        skips_known=True,
    )


def prepare_start(  # noqa: PLR0913 - each is one thing it needs
    writer: TableWriter,
    checkpoint: Location,
    state: StateFile,
    topic: OffsetsTopic,
    *,
    reset: bool,
    away: timedelta | None,
    tables: QueryTables | None = None,
    log: LogCheck = NO_CUT,
    groups: Collection[str] = (),
) -> StartPosition:
    """Make checkpoint, state, tables and topic consistent. By default `tables` are those of the groups.

    `log` says whether the log still has all that was read. `groups` are read again. `away` is how long ago the job was
    last at the end of the topic; None (not known) counts as too long. Raises OtherTopicError if the topic is not the
    earlier one and `reset` is not given.
    """
    tables = tables or group_tables(writer, checkpoint, state)
    known, identity = state.state, writer.identity(tables.names[0])
    found = Found(known, topic, checkpoint, tables.versions, identity, away, reset)
    if found.is_other and not reset:
        advice = "Give another --cluster, or --reset to drop the rows of the groups and read from the beginning"
        raise OtherTopicError(f"{found.difference} {advice}; the history stays")
    reason = next((text for answer in ANSWERS.values() if (text := answer(found)) is not None), None)
    if reason is None and log.is_whole and not groups:
        writer.check_owner()
        state.write(partitions=topic.partitions, until=_until(known, topic))
        finish_reading(tables, state, newest_batch_ends(checkpoint).committed)  # the earlier job ended before this step
        begun = "commits" in checkpoint.names()
        return StartPosition("resuming from the checkpoint" if begun else "reading from the beginning", state.state)

    before, cuts = (StreamState(), ()) if found.is_other else (known, log.cuts)
    read_again = frozenset(range(topic.partitions))
    if reason is None:
        read_again = frozenset(
            {cut.partition for cut in cuts} | {partition_of(one, topic.partitions) for one in groups}
        )
    tell_of_cuts(writer, cuts, tables.names, tables.own_rows, has_topologies=bool(tables.history))
    committed = log.committed if before.rows == identity else {}
    history: Mapping[str, Offsets] = {}
    if not found.is_other:
        history = _history(
            writer, tables.history, known, topic, restored=found.restored, cuts=cuts, committed=committed
        )
    had_rows = not all(writer.table(name).is_empty() for name in tables.names)
    with_records = [one for one in read_again if topic.end_offsets.get(one, 0) > topic.start_offsets.get(one, 0)]
    marked_until = {one: topic.end_offsets[one] for one in with_records if had_rows and not reset}
    ends = log.committed or before.starting  # after the last commit
    starting = {one: EARLIEST if one in read_again else ends.get(one, EARLIEST) for one in range(topic.partitions)}
    following = StreamState(
        topic.cluster_id,
        topic.name,
        topic.topic_id,
        topic.partitions,
        found.has_grown or before.partitions_grew,
        history=history,
        history_after=_newest(writer, tables.history) if found.is_other else known.history_after,
        starting=starting if reason is None else {},
        # Keep ends that an earlier reading has not reached yet.
        until=marked_until if reason is not None else {**_until(before, topic), **marked_until},
        ends=before.ends,
        epochs=before.epochs,
        acts=tuple(act for act in before.acts if act["source_partition"] not in read_again),
    )
    writer.check_owner()  # the fence cannot keep a paused job from removing the checkpoint of its successor
    state.replace(following)
    checkpoint.remove_directory()
    if lost := [rows_of(cut, tables.names[0]) for cut in cuts if had_rows and not cut.unread]:
        tables.delete(" OR ".join(lost))
    outdated = _ALL if reason is not None else _outdated(tables, cuts, groups, following)
    if had_rows and outdated:
        (tables.mark if marked_until else tables.delete)(outdated)
    state.note(rows=identity)
    tables.versions.write()  # so that the loss of a table during the first batch is also noticed
    if reason is None:
        return StartPosition(_partly(cuts, groups), state.state, read_again=read_again)
    message = reason or "reading from the beginning"
    if not reason and (had_rows or any(history.values())):
        message += " again; the history stays"
    message = f"{_lost(cuts)}; {message}" if cuts else message
    return StartPosition(message, state.state, from_beginning=True, read_again=read_again)


def finish_reading(tables: QueryTables, state: StateFile, ends: Offsets | None) -> bool:
    """If a batch with these ends finishes the reading, delete the remaining marked rows; return whether it does."""
    until = state.state.until
    if not until or ends is None or any(ends.get(partition, 0) < end for partition, end in until.items()):
        return False
    tables.delete(_IS_MARKED)  # their records are gone
    tables.also_finish()
    state.write(until={})
    return True


def _mark(groups: RustTable, condition: str) -> None:
    """Mark the rows of groups that match, some files at a time: delta-rs holds in memory all that a commit rewrites."""
    left = f"({condition}) AND (last_offset IS NULL OR last_offset > {READ_AGAIN})"
    mark = {"last_offset": f"{marked(0)} - coalesce(last_offset, -1)"}
    for span in ranges(group_files(groups.open(), groups.cluster), _MARKED_BYTES):
        groups.update(mark, f"{left} AND {span.condition}")
    groups.update(mark, left)  # the rows in files whose ranges are shortened in the log


def _outdated(tables: QueryTables, cuts: Sequence[Cut], groups: Collection[str], following: StreamState) -> str:
    """Return the SQL condition for the rows that no longer count where not all partitions are read again."""
    if not tables.skips_known:  # the rows of all records that the query reads
        places = ((one, max(0, following.starting.get(one, 0))) for one in range(following.partitions))
        return " OR ".join(f"(source_partition = {one} AND last_offset >= {offset})" for one, offset in places)
    conditions = [of_partition(cut) for cut in cuts if cut.unread]
    if groups:
        conditions.append(f"group_id IN ({', '.join(map(quote, groups))})")
    return " OR ".join(conditions)


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


def _newest(writer: TableWriter, tables: Sequence[Table]) -> str | None:
    """Return the newest time in the history: offsets of a deleted topic mean nothing for a new topic of that name."""
    ends = (writer.table(one.name).select(f"max({one.expires_by})").column(0)[0].as_py() for one in tables)
    newest = max(filter(None, ends), default=None)
    return newest and newest.isoformat()


def _history(  # noqa: PLR0913 - each is one thing it needs
    writer: TableWriter,
    tables: Sequence[Table],
    known: StreamState,
    topic: OffsetsTopic,
    *,
    restored: Sequence[str],
    cuts: Sequence[Cut],
    committed: Offsets,
) -> dict[str, Offsets]:
    """Return up to where the history reaches.

    In a partition that was cut no table reaches further than the records that are left. In others it reaches up to the
    `committed` batches: a record may leave no event, so the highest offset in a table may be lower than what was read,
    and a copy of a record that compaction left beyond it would give its events once more.

    If the state was lost, offsets beyond the end of the topic are those of another topic.
    """
    after = known.history_after
    kept = {name: reached for name, reached in known.history.items() if name not in restored}
    offsets: dict[str, Offsets] = {}
    left = {cut.partition: cut.start - 1 for cut in cuts if not cut.unread}
    whole = {p: end - 1 for p, end in committed.items() if end and p not in {cut.partition for cut in cuts}}
    for one in tables:
        conditions = [f"({_OWN_ROWS.get(one.name, 'true')})", *([NOT_VOID] if one.name in VOIDED else [])]
        if after:
            conditions.append(f"{one.expires_by} > {time_literal(datetime.fromisoformat(after))}")
        columns = f'"{one.partition_column}", max("offset")'
        reached = writer.table(one.name).select(columns, " AND ".join(conditions), "GROUP BY 1").columns
        pairs = zip(*(column.to_pylist() for column in reached), strict=True)
        fits = {p: offset for p, offset in pairs if offset < topic.end_offsets.get(p, 0)}
        earlier = kept.get(one.name, {})
        known_ends = (fits, earlier, {} if one.name in restored else whole)
        highest = {p: max(ends.get(p, -1) for ends in known_ends) for p in set().union(*known_ends)}
        offsets[one.name] = {p: min(offset, left.get(p, offset)) for p, offset in highest.items()}
    return offsets


def _until(known: StreamState, topic: OffsetsTopic) -> dict[int, int]:
    """Return up to where partitions are read again: at most to the end of the log, which may have been cut since."""
    return {p: min(end, topic.end_offsets.get(p, end)) for p, end in known.until.items()}

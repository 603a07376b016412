"""Keeps what is known of every partition from pass to pass, and gives the rows of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from streaming_app.lag.model import (
    NO_ENDS,
    NO_TASKS,
    NOBODY,
    Commit,
    GroupTasks,
    LagRow,
    LogEnds,
    Owner,
    ReadUntil,
    TopicPartition,
)
from streaming_app.lag.series import Age, CommitSeries, EndSamples
from streaming_app.lag.status import (
    AHEAD,
    CATCHING_UP,
    LOST,
    MARKER,
    STALLED,
    STALLED_COMMIT_SECONDS,
    STALLED_COMMITS,
    UNKNOWN,
    Facts,
    status_of,
)

CommitKey = tuple[str, str, int]
"""Group, topic and partition."""

LATE_SECONDS = 60.0
"""When what a group did is known only up to so long ago, its status is held, and its lag is not known."""

_NO_AGE = Age(0.0, is_lower_bound=False)  # no record waits; at most the marker of a transaction is left


class LagTracker:
    """The partitions that any group commits or reads; for one thread."""

    def __init__(
        self, allowed_lag: Callable[[str], int] = lambda _group_id: 0, late_seconds: float = LATE_SECONDS
    ) -> None:
        """Begin without knowledge. `allowed_lag` returns what is no lag for a group, in offsets."""
        self._allowed_lag, self._late_seconds = allowed_lag, late_seconds
        self._samples: dict[TopicPartition, EndSamples] = {}
        self._topic_ids: dict[str, str] = {}
        self._series: dict[CommitKey, CommitSeries] = {}
        self._moved: set[TopicPartition] = set()

    def observe(
        self,
        commits: Mapping[CommitKey, Commit],
        ends: Mapping[TopicPartition, LogEnds],
        groups: Mapping[str, GroupTasks],
        now: float,
        read_until: Mapping[str, ReadUntil] = MappingProxyType({}),
    ) -> list[LagRow]:
        """Take in a pass, of which the commits were read before the ends, and return a row for each commit.

        What a group did is known up to now, unless `read_until` says otherwise of it. What is in `commits` no more is
        forgotten, and so are the samples of partitions that nobody commits.
        """
        recreated = self._observe_ends(ends, now)
        allowed = {group_id: self._allowed_lag(group_id) for group_id in {key[0] for key in commits}}
        for key in self._series.keys() - commits.keys():
            del self._series[key]
        up_to_now = ReadUntil(now, now)
        return [
            self._row(
                key,
                commit,
                ends.get(key[1:], NO_ENDS),
                groups.get(key[0], NO_TASKS),
                now,
                read_until.get(key[0], up_to_now),
                allowed[key[0]],
                recreated,
            )
            for key, commit in commits.items()
        ]

    def samples(self) -> Mapping[TopicPartition, EndSamples]:
        """Return the samples by topic and partition."""
        return self._samples

    def topic_id(self, topic: str) -> str | None:
        """Return the id of the topic that the samples are of."""
        return self._topic_ids.get(topic)

    def restore_samples(
        self, topic: str, partition: int, topic_id: str | None, samples: Iterable[tuple[int, float]]
    ) -> None:
        """Begin with the samples that an earlier run kept."""
        if topic_id is not None:
            self._topic_ids[topic] = topic_id
        self._samples[topic, partition] = EndSamples(samples)

    def restore_row(self, row: LagRow) -> None:
        """Begin with what an earlier run knew of a commit."""
        if row.committed_offset is None:
            return
        series = self._series[row.group_id, row.topic, row.partition] = CommitSeries()
        series.observe_commit(row.committed_offset, row.committed_at, row.observed_at)
        series.behind_since, series.rewound_from = row.behind_since, row.rewound_from
        series.rewound_at = row.status_since or row.observed_at
        series.status, series.status_since = row.status, row.status_since or row.observed_at
        series.is_beyond_end = row.status == AHEAD
        if row.status == STALLED:  # the same offset is committed again and again, and was for a minute before
            series.commits_at_offset = STALLED_COMMITS
            series.offset_since = series.status_since - STALLED_COMMIT_SECONDS
        if row.lag and row.lag_seconds == 0 and row.lag_seconds_is_lower_bound is False:
            series.empty_to = row.log_end_offset or 0
        if row.commit_interval_seconds is not None:
            series.restore_interval(row.commit_interval_seconds)

    def _observe_ends(self, ends: Mapping[TopicPartition, LogEnds], now: float) -> set[str]:
        """Add the samples; return the topics that were created again since the pass before."""
        topic_ids = {topic: one.topic_id for (topic, _), one in ends.items() if one.topic_id is not None}
        recreated = {topic for topic, known in self._topic_ids.items() if topic_ids.get(topic, known) != known}
        known_ids = {topic: self._topic_ids[topic] for topic, _ in ends if topic in self._topic_ids}
        self._topic_ids = {**known_ids, **topic_ids}
        self._samples = {key: samples for key, samples in self._samples.items() if key in ends}
        self._moved = set()
        for key, one in ends.items():
            if one.end is None:
                continue
            samples = self._samples.get(key)
            if samples is None:
                samples = self._samples[key] = EndSamples()
            elif key[0] in recreated:
                samples.clear()
            if samples.add(one.end, now if one.at is None else one.at):
                self._moved.add(key)
        return recreated

    def _measure(  # noqa: PLR0913, PLR0917 - what is known of one commit
        self, key: CommitKey, committed: int, ends: LogEnds, series: CommitSeries, now: float, allowed: int
    ) -> _Measured:
        """Return what lies between a commit and the end of the log, which is known, and its age."""
        end, offset = ends.end or 0, max(committed, ends.start or 0)
        lag = max(0, end - offset)  # the start may be newer than the end
        has_record, is_at_rest = _has_record(ends, offset), key[1:] not in self._moved
        rests = lag == 0 or has_record is False or (has_record is None and lag == MARKER and is_at_rest)
        if has_record:
            series.had_record = True
        elif has_record is False and committed == offset:
            series.empty_to = end
        series.observe_lag(0 if rests else lag, now, allowed=allowed)
        lost = max(0, ends.start - max(committed, series.empty_to)) if ends.start is not None else None
        if lag == 0 and (lost or 0) > MARKER and not series.had_record and series.status != LOST:
            return _Measured(lag, None, _NO_AGE, is_unknown=True)  # deleted before it was read what it was
        if not rests and is_at_rest and has_record is None and ends.tail is not None and ends.tail.is_denied:
            return _Measured(lag, lost, None, is_unknown=True)
        return _Measured(lag, lost, _NO_AGE if rests else self._samples[key[1:]].age(offset, now), is_unknown=False)

    def _row(  # noqa: PLR0913, PLR0917 - what is known of one commit
        self,
        key: CommitKey,
        commit: Commit,
        ends: LogEnds,
        tasks: GroupTasks,
        now: float,
        read_until: ReadUntil,
        allowed: int,
        recreated_topics: set[str],
    ) -> LagRow:
        group_id, topic, partition = key
        subtopology_id, owner = _task(tasks, topic, partition)
        if commit.offset is None:
            return _without_commit(key, ends, subtopology_id, owner, now, read_until.commits)
        series = self._series.get(key)
        is_first = series is None
        if series is None:
            series = self._series[key] = CommitSeries()
        elif topic in recreated_topics:
            series.restart()
        series.observe_commit(commit.offset, commit.committed_at, now)
        is_recreated = _is_recreated(commit, ends)
        is_beyond = not is_recreated and commit.offset > (commit.offset if ends.end is None else ends.end)
        is_ahead, series.is_beyond_end = is_beyond and series.is_beyond_end, is_beyond
        known_until = min(now, *read_until)
        late = now - known_until
        is_comparable = not is_recreated and not is_beyond and now - read_until.commits <= self._late_seconds
        found = _NOT_KNOWN
        if ends.end is not None and is_comparable:
            found = self._measure(key, commit.offset, ends, series, now, allowed)
            if is_first and series.behind_since is not None:  # it began before this run looked
                written_by = self._samples[key[1:]].written_by(max(commit.offset, ends.start or 0) + allowed)
                series.behind_since = min(now, max(series.offset_since, written_by or now))
        lag, lost, age, is_unknown = found
        facts = Facts(
            lag=None if is_unknown else lag,
            allowed=allowed,
            age=max(0.0, age.seconds - late) if age else 0.0,
            age_is_lower_bound=age.is_lower_bound if age else False,
            is_left_over=tasks.subtopology_of is not None and subtopology_id is None,
            is_recreated=is_recreated,
            is_ahead=is_ahead,
            lost=lost or 0 if known_until >= min(now, ends.start_at or now) else 0,
            has_owner=_has_owner(tasks, owner),
            is_rewound=series.rewound_from is not None,
            patience=series.patience,
            since_commit=known_until - series.seen_at,
            since_offset=known_until - series.offset_since,
            commits_at_offset=series.commits_at_offset,
            behind_for=_behind_for(series, age, allowed, now) - late,
            falls=False,
        )
        catch_up = None
        if lag is not None and lag > allowed:
            trend = series.trend()
            facts.falls, catch_up = trend.falls, trend.catch_up_seconds
        status, held = status_of(
            facts,
            series.status,
            is_rebalancing=tasks.rebalancing_since is not None,
            is_late=late > self._late_seconds,
        )
        if status != series.status:
            series.status, series.status_since = status, now
        series.held_since = (series.held_since or now) if held else None
        shown = None if age and age.is_lower_bound and not age.seconds else age  # "at least 0 s" says nothing
        return LagRow(
            group_id,
            topic,
            partition,
            subtopology_id,
            None if subtopology_id is None else f"{subtopology_id}_{partition}",
            owner.member_id or None,
            owner.process_id,
            owner.client_host,
            commit.offset,
            commit.leader_epoch,
            commit.committed_at,
            commit.partition_time,
            ends.start,
            ends.end,
            ends.stable,
            lag,
            shown.seconds if shown else None,
            shown.is_lower_bound if shown else None,
            lost,
            status,
            series.status_since,
            series.held_since,
            series.behind_since,
            catch_up if status == CATCHING_UP else None,
            series.commit_interval,
            series.rewound_from,
            ends.leader,
            now if ends.at is None else ends.at,
            _known_until(read_until.commits, ends),
        )


class _Measured(NamedTuple):
    lag: int | None
    lost: int | None
    age: Age | None
    is_unknown: bool
    """It is not known whether records lie there."""


_NOT_KNOWN = _Measured(None, None, None, is_unknown=False)


def _behind_for(series: CommitSeries, age: Age | None, allowed: int, now: float) -> float:
    """Return how long the lag has been above what is allowed, as far as it is known.

    A commit leaves lag from the moment at which the first record after it is written.
    """
    observed = 0.0 if series.behind_since is None else now - series.behind_since
    if allowed or age is None or age.is_lower_bound:
        return observed
    return max(observed, min(age.seconds, now - series.offset_since))


def _task(tasks: GroupTasks, topic: str, partition: int) -> tuple[str | None, Owner]:
    subtopology_id = (tasks.subtopology_of or {}).get(topic)
    return subtopology_id, NOBODY if subtopology_id is None else tasks.owners.get((subtopology_id, partition), NOBODY)


def _has_owner(tasks: GroupTasks, owner: Owner) -> bool | None:
    if tasks.subtopology_of is not None:
        return owner is not NOBODY
    return tasks.has_members if tasks.has_members is not True else None


def _is_recreated(commit: Commit, ends: LogEnds) -> bool:
    """Tell whether the commit is of another topic of the same name; by the offset only where an id is unknown."""
    if commit.topic_id is not None and ends.topic_id is not None:
        return commit.topic_id != ends.topic_id
    return ends.end is not None and commit.offset is not None and commit.offset > ends.end


def _has_record(ends: LogEnds, offset: int) -> bool | None:
    """Tell whether a record lies between this offset and the end; None: not known."""
    return ends.tail.has_record(offset) if ends.tail is not None and ends.tail.end == ends.end else None


def _known_until(commits: float, ends: LogEnds) -> float | None:
    """Return until when both the commits and the end of the log are known; None if one of them never was."""
    return min(commits, ends.answered_at) if commits and ends.answered_at is not None else None


def _without_commit(  # noqa: PLR0913, PLR0917 - what is known of it
    key: CommitKey, ends: LogEnds, subtopology_id: str | None, owner: Owner, now: float, commits: float
) -> LagRow:
    group_id, topic, partition = key
    return LagRow(
        group_id=group_id,
        topic=topic,
        partition=partition,
        subtopology_id=subtopology_id,
        task_id=None if subtopology_id is None else f"{subtopology_id}_{partition}",
        member_id=owner.member_id or None,
        process_id=owner.process_id,
        client_host=owner.client_host,
        committed_offset=None,
        leader_epoch=None,
        committed_at=None,
        partition_time=None,
        log_start_offset=ends.start,
        log_end_offset=ends.end,
        last_stable_offset=ends.stable,
        lag=None,
        lag_seconds=None,
        lag_seconds_is_lower_bound=None,
        lost_offsets=None,
        status=UNKNOWN,
        status_since=None,
        held_since=None,
        behind_since=None,
        catch_up_seconds=None,
        commit_interval_seconds=None,
        rewound_from=None,
        leader=ends.leader,
        observed_at=now if ends.at is None else ends.at,
        known_until=_known_until(commits, ends),
    )

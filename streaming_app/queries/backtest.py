"""What would have fired: the recorded events and lag of a warehouse, played again through the engine of the alerts.

Theory of operation
-------------------
The events of `group_events` make the groups and their histories as they were, and `lag_history` the committed offsets
and the ends of the logs, of which the lag is found again as a pass of the job does. After each change, and once a
minute, the real engine takes a step with that, and what it says of incidents and alerts is the result. The play begins
two hours before the time that is asked for, so that what was wrong then is known.

Not everything is recorded: `Lacks` says what is missing, so that nobody takes silence for health.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import merge
from typing import Any, NamedTuple

from streaming_app.alerts.alert import FIRING, PENDING, RESOLVED, Alert, severity_rank
from streaming_app.alerts.engine import AlertEngine, EngineSettings, Observed
from streaming_app.alerts.evaluate import RULES_FOR_INCIDENTS, RULES_FOR_LAG
from streaming_app.alerts.notification_queue import Grouping
from streaming_app.alerts.outbox import Backoff, Outboxes
from streaming_app.alerts.survey import DescriptionSupport
from streaming_app.groups.snapshot import BEHIND, REBALANCING, GroupSnapshot, UnsettledMember, group_snapshot
from streaming_app.groups.snapshot import COLUMNS as SNAPSHOT_COLUMNS
from streaming_app.groups.state_rules import DEAD
from streaming_app.health.history import COLUMNS as EVENT_COLUMNS
from streaming_app.health.history import EMPTY_KEPT_FOR, WINDOW, GroupHistories
from streaming_app.lag.group_lag import GroupLag, group_lags
from streaming_app.lag.model import Commit, GroupTasks, LogEnds, TopicPartition, group_tasks
from streaming_app.lag.tracker import CommitKey, LagTracker
from streaming_app.lag.work import GroupWork, observe_work
from streaming_app.queries.history import GroupAt, parse_tasks
from streaming_app.regex import compiled
from streaming_app.tables.reader import WarehouseReader, quote, time_literal
from streaming_app.text import utc

Row = Mapping[str, Any]
WARM_UP = timedelta(hours=2)
_PASS = timedelta(minutes=1)
_REST = timedelta(minutes=65)  # after a row of `lag_history` so long the lag is known: at rest there is one an hour
_EVENTS = ", ".join(f'"{name}"' for name in EVENT_COLUMNS)
_SAMPLE_COLUMNS = "group_id, topic, partition, committed_offset, log_start_offset, log_end_offset, observed_at"
_RULES = frozenset((*(one.name for one in RULES_FOR_INCIDENTS), *(one.name for one in RULES_FOR_LAG)))
OPENED, ESCALATED, ENDED, SILENCED = "opened", "escalated", "ended", "silenced"


class Heard(NamedTuple):
    """What an on-call person would have heard."""

    at: datetime
    what: str
    """`opened`, `escalated` or `ended`; `silenced` instead of the first while that was not sent."""
    alert: Alert
    sinks: Sequence[str]


@dataclass
class Result:
    """What would have fired, and what is not known."""

    heard: list[Heard] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    steps: int = 0


@dataclass
class Recorded:
    """What a warehouse has of a cluster up to a time."""

    events: Sequence[Row]
    """By time."""
    samples: Sequence[Row]
    """By time: the newest of each partition before the begin, and all after it."""
    topologies: Mapping[str, Sequence[Row]]
    """By group, the oldest first."""
    retention: Mapping[str, float]
    first_seen: Mapping[str, datetime]


def read_recorded(
    reader: WarehouseReader, cluster: str, begin: datetime, end: datetime, retention: Mapping[str, float]
) -> Recorded:
    """Return what is recorded. Raises WarehouseError."""
    mine, until = f"cluster = {quote(cluster)}", time_literal(end)
    events = reader.rows(
        f"SELECT group_id, {_EVENTS} FROM group_events e WHERE {mine} AND void IS NOT TRUE AND at <= {until} "  # noqa: S608 - quoted
        "ORDER BY at, e.offset, kind <> 'created', kind"
    )
    since = time_literal(begin)
    samples = reader.rows(
        f"SELECT {_SAMPLE_COLUMNS} FROM (SELECT *, row_number() OVER "  # noqa: S608 - quoted
        f"(PARTITION BY group_id, topic, partition ORDER BY observed_at DESC) AS number FROM lag_history "
        f"WHERE {mine} AND observed_at < {since}) AS ranked WHERE number = 1 "
        f"UNION ALL SELECT {_SAMPLE_COLUMNS} FROM lag_history WHERE {mine} AND observed_at >= {since} "
        f"AND observed_at <= {until} ORDER BY observed_at"
    )
    topologies: dict[str, list[Row]] = defaultdict(list)
    for row in reader.rows(
        f"SELECT group_id, first_seen_at, subtopologies FROM topologies WHERE {mine} ORDER BY first_seen_at"  # noqa: S608 - quoted
    ):
        topologies[row["group_id"]].append(row)
    seen = reader.rows(f"SELECT group_id, first_seen_at FROM groups WHERE {mine} AND first_seen_at IS NOT NULL")  # noqa: S608 - quoted
    first_seen = {row["group_id"]: row["first_seen_at"] for row in seen}
    return Recorded(events, samples, topologies, retention, first_seen)


class _Group:
    """A group as the events make it."""

    def __init__(self, group_id: str, recorded: Recorded) -> None:
        self._group_id, self._topologies = group_id, recorded.topologies.get(group_id, ())
        self._first_seen = recorded.first_seen.get(group_id)
        self._at = GroupAt()
        self._type = "streams"
        self._since: dict[str, datetime] = {}
        self._members_since: datetime | None = None
        self._offset = -1

    def apply(self, event: Row) -> None:
        had_members = bool(self._at.members)
        self._at.apply(dict(event))
        if event["kind"] == "group_type":
            self._type = event["new"] or self._type
        if self._at.members and not had_members:
            self._members_since = event["at"]
        self._since[event["kind"]] = event["at"]
        self._offset = max(self._offset, event["offset"])

    def snapshot(self) -> GroupSnapshot:
        values, since = self._at.values, self._since
        known = [time for time in (self._first_seen, since.get("created")) if time]
        row = dict.fromkeys(SNAPSHOT_COLUMNS) | {
            "group_id": self._group_id,
            "group_type": self._type,
            "state": DEAD if self._at.deleted_at else values["state"] or "Unknown",
            "state_since": since.get("state"),
            "description_status": values["description_status"] or "NO_TOPOLOGY",
            "description_since": since.get("description_status"),
            "not_ready_reason": values["not_ready_reason"],
            "member_count": len(self._at.members),
            "members_since": self._members_since if self._at.members else None,
            "first_seen_at": min(known, default=None),
            "updated_at": max(since.values(), default=None),
            "deleted_at": self._at.deleted_at,
            "last_offset": self._offset,
            **{name: int(values[name] or 0) for name in ("group_epoch", "assignment_epoch", "topology_epoch")},
            "assigned_at": since.get("assignment_epoch"),
            **dict.fromkeys(("validated_topology_epoch", "stored_description_epoch", "failed_description_epoch"), -1),
            **dict.fromkeys(("unsolicited_pushes", "stale_member_count"), 0),
            "solicitable": False,
        }
        found = group_snapshot(row)
        return replace(found, unsettled=(self._awaited(),), unsettled_count=1) if found.state in REBALANCING else found

    def _awaited(self) -> UnsettledMember:
        """Return the member that a rebalance waits for: who it is no event says, and how long the group has rested."""
        at = max(self._since.values(), default=None)
        return UnsettledMember("?", BEHIND, "a member that is not recorded", None, None, None, at, None, (), 0)

    def tasks(self, now: datetime, topics: Collection[str]) -> GroupTasks:
        """Return who has which task, by the topology of that time."""
        number = bisect_right(self._topologies, now, key=lambda row: row["first_seen_at"])
        topology = self._topologies[max(0, number - 1)] if self._topologies else {"subtopologies": ()}
        members = self._at.members.values()
        row = {
            "deleted_at": self._at.deleted_at,
            "group_type": self._type,
            "state": self._at.values["state"],
            "state_since": self._since.get("state"),
            "member_count": len(self._at.members),
            "subtopologies": topology["subtopologies"],
            "members": [
                {"member_id": one.member_id, "process_id": None, "client_host": one.client_host} for one in members
            ],
            "assignments": [
                {
                    "member_id": one.member_id,
                    "role": role,
                    "subtopology_id": subtopology_id,
                    "partition": partition,
                    "current": True,
                }
                for one in members
                for role, subtopology_id, partition in parse_tasks(one.tasks)
            ],
        }
        return group_tasks(row, lambda pattern: [topic for topic in topics if compiled(pattern).matches(topic)])


class _Lag:
    """The lag, found again from the samples as a pass of the job does."""

    def __init__(self, allowed_lag: Callable[[str], int]) -> None:
        self._allowed_lag = allowed_lag
        self._tracker = LagTracker(allowed_lag)
        self._commits: dict[CommitKey, Commit] = {}
        self._ends: dict[TopicPartition, LogEnds] = {}
        self._tasks: dict[str, tuple[int, GroupTasks]] = {}
        self.known_at: datetime | None = None
        self.groups: dict[str, GroupLag] = {}
        self.work: dict[str, GroupWork] = {}

    def take(self, sample: Row) -> None:
        """Take in a row of `lag_history`."""
        topic, partition, group_id = sample["topic"], sample["partition"], sample["group_id"]
        at, offset = sample["observed_at"].timestamp(), sample["committed_offset"]
        before = self._commits.get((group_id, topic, partition))
        if before is None or before.offset != offset:
            committed_at = None if offset is None else at
            self._commits[group_id, topic, partition] = Commit(offset, committed_at=committed_at)
        self._ends[topic, partition] = LogEnds(sample["log_end_offset"], sample["log_start_offset"], start_at=at)
        self.known_at = sample["observed_at"]

    def observe(self, groups: Mapping[str, _Group], now: datetime) -> None:
        """Find the lag of this time."""
        topics = {topic for topic, _ in self._ends}
        tasks = {name: groups[name].tasks(now, topics) for name in {key[0] for key in self._commits} if name in groups}
        at = now.timestamp()
        rows = self._tracker.observe(self._commits, self._ends, tasks, at)
        self.groups = group_lags(rows, self.groups, at)
        self.work = observe_work(rows, tasks, self.work, at, self._allowed_lag)


def backtest(  # noqa: PLR0913 - what it plays, when, and with which settings
    recorded: Recorded,
    settings: EngineSettings,
    begin: datetime,
    end: datetime,
    *,
    allowed_lag: Callable[[str], int] = lambda _group_id: 0,
    silenced_until: Callable[[Alert, datetime], datetime | None] = lambda _alert, _at: None,
    progress: Callable[[datetime], None] = lambda _at: None,
) -> Result:
    """Play what is recorded from two hours before `begin` to `end`; rules of which the facts are not recorded are off.

    `silenced_until` says until when an alert is silenced; `progress` is called with the time of each step.
    """
    own_settings = settings.rule_settings_of

    def rule_settings_of(group_id: str | None) -> Mapping[str, Any]:
        return {name: one for name, one in own_settings(group_id).items() if name in _RULES}

    engine_settings = EngineSettings(
        settings.cluster, rule_settings_of, settings.notify_policy, max_new_groups=settings.max_new_groups,
        duty_of=settings.duty_of,
    )  # fmt: skip
    engine = AlertEngine(engine_settings, (), Outboxes((), Grouping(), Backoff()), DescriptionSupport("never"))
    result, groups, histories, lag = Result(), dict[str, _Group](), GroupHistories(WINDOW), _Lag(allowed_lag)
    snapshots: dict[str, GroupSnapshot] = {}
    known: dict[tuple[str, str | None], Alert] = {}
    start, gone = begin - WARM_UP, set[str]()
    gaps = _Gaps(start)
    for now, kind, rows in _moments(recorded, start, end):
        for row in rows:
            if kind == "events":
                group_id = row["group_id"]
                group = groups.setdefault(group_id, _Group(group_id, recorded))
                group.apply(row)
                snapshots[group_id] = group.snapshot()
                histories.add(group_id, row, now)
            else:
                lag.take(row)
        if now < start:
            continue
        if kind != "events":
            if lag.known_at is not None and now - lag.known_at <= _REST:
                lag.observe(groups, now)
            gaps.passed(now, lag.known_at)
        histories.prune(snapshots, now)
        observed = Observed(
            dict(snapshots), histories.groups(), lag=lag.groups, work=lag.work, retention=recorded.retention
        )
        for alert in engine.step(observed, now):
            result.heard += _heard(known, alert, settings, now)
        engine.saved(engine.unsaved)
        engine.saved_health(engine.unsaved_health)
        result.steps += 1
        for group_id in gone:
            snapshots.pop(group_id, None)
        gone = {name for name, one in snapshots.items() if one.state == DEAD}
        progress(now)
    result.heard = _within(_with_silences(result.heard, silenced_until, end), begin)
    result.lacks = [*_lacks(recorded, start), *gaps.lines(end)]
    return result


def _moments(recorded: Recorded, start: datetime, end: datetime) -> Iterator[tuple[datetime, str, list[Row]]]:
    """Yield the times at which something happened or a pass is due, in order, with what happened."""
    events: dict[datetime, list[Row]] = defaultdict(list)
    for event in recorded.events:
        events[event["at"]].append(event)
    samples: dict[datetime, list[Row]] = defaultdict(list)
    for sample in recorded.samples:
        samples[max(start, sample["observed_at"])].append(sample)
    ticks = (start + number * _PASS for number in range(int((end - start) / _PASS) + 1))
    streams: tuple[Iterator[tuple[datetime, str, list[Row]]], ...] = (
        ((at, "events", rows) for at, rows in sorted(events.items())),
        ((at, "samples", rows) for at, rows in sorted(samples.items())),
        ((at, "tick", []) for at in ticks if at not in samples),
    )
    yield from merge(*streams, key=lambda moment: moment[0])


def _heard(
    known: dict[tuple[str, str | None], Alert], alert: Alert, settings: EngineSettings, now: datetime
) -> Iterator[Heard]:
    before = known.get(alert.key)
    known[alert.key] = alert
    what = None
    if alert.state == RESOLVED:
        what = ENDED
    elif alert.state == FIRING and (before is None or before.state in {PENDING, RESOLVED}):
        what = OPENED
    elif before and severity_rank(alert.severity) < severity_rank(before.severity):
        what = ESCALATED
    if what and alert.opened_at:
        # there is no step at each time at which an alert is due
        at = min(now, _due_at(alert, settings)) if what == OPENED else now
        yield Heard(at, what, alert, settings.notify_policy.sinks_of(alert))


def _due_at(alert: Alert, settings: EngineSettings) -> datetime:
    rule = settings.rule_settings_of(alert.group_id).get(alert.rule)
    return alert.pending_since + timedelta(seconds=rule.for_seconds if rule else 0.0)


def _with_silences(
    heard: Sequence[Heard], silenced_until: Callable[[Alert, datetime], datetime | None], end: datetime
) -> list[Heard]:
    """Return what is notified with silences: what goes on as they end is notified then, what has ended before never."""
    ended = {one.alert.fingerprint: one.at for one in heard if one.what == ENDED}
    told_at: dict[str, datetime] = {}
    found: list[Heard] = []
    for one in heard:
        until = None if one.what == ENDED else silenced_until(one.alert, one.at)
        name, at = one.alert.fingerprint, until or one.at
        is_told = until is None or at < ended.get(name, end)
        if until and one.what == OPENED:
            found.append(one._replace(what=SILENCED, sinks=()))
        if one.what == OPENED and is_told:
            told_at[name] = at
        if is_told and name in told_at and at >= told_at[name]:
            found.append(one._replace(at=at))
    return sorted(found, key=lambda one: one.at)


def _within(heard: Sequence[Heard], begin: datetime) -> list[Heard]:
    """Return what was heard since `begin`, and of what began before that and goes on the begin."""
    ended = {one.alert.fingerprint for one in heard if one.what == ENDED and one.at < begin}
    return [one for one in heard if one.at >= begin or one.alert.fingerprint not in ended]


class _Gaps:
    """The times in which the lag was not known."""

    def __init__(self, start: datetime) -> None:
        self._since: datetime | None = start
        self._gaps: list[tuple[datetime, datetime]] = []

    def passed(self, now: datetime, known_at: datetime | None) -> None:
        """Note a pass, and the newest row of the history then."""
        is_known = known_at is not None and now - known_at <= _REST
        if is_known and self._since is not None:
            self._gaps.append((self._since, now))
            self._since = None
        elif not is_known and self._since is None:
            self._since = now

    def lines(self, end: datetime) -> Iterator[str]:
        """Yield a line for each that lasted for longer than a pass or two."""
        for since, until in (*self._gaps, *([(self._since, end)] if self._since else [])):
            if until - since > 2 * _PASS:
                yield f"the lag from {utc(since)} to {utc(until)}: lag_history has no row for longer than an hour"


def _lacks(recorded: Recorded, start: datetime) -> Iterator[str]:
    """Yield a line for each fact that is not recorded."""
    first = recorded.events[0]["at"] if recorded.events else None
    if first is None or first > start - EMPTY_KEPT_FOR:
        since = f" before {utc(first)}" if first else ""
        yield f"events{since}: when groups usually rest is known from {EMPTY_KEPT_FOR.days} days"
    if any(sample["log_start_offset"] is None for sample in recorded.samples):
        yield "starts of logs in rows of an older release: Losing is not found there"
    if not recorded.retention:
        yield "the retention of topics: when records will be lost is not known"
    yield "which member holds up a rebalance, restores, and commits between two rows of lag_history"
    yield f"facts of the rules that are not verdicts or about lag: only {len(_RULES)} rules are played"


def heard_rows(heard: Sequence[Heard]) -> list[dict[str, Any]]:
    """Return the rows of the command `alerts backtest`."""
    return [
        {
            "AT": one.at,
            "WHAT": one.what,
            "SEVERITY": one.alert.severity,
            "RULE": one.alert.rule,
            "GROUP": one.alert.group_id,
            "TEAM": one.alert.team,
            "TO": ", ".join(one.sinks),
            "SUMMARY": one.alert.summary,
        }
        for one in heard
    ]


def result_json(result: Result) -> dict[str, Any]:
    """Return what `alerts backtest --json` prints."""
    heard = [
        {
            "at": one.at,
            "what": one.what,
            "sinks": list(one.sinks),
            **{name: getattr(one.alert, name) for name in ("severity", "rule", "group_id", "incident_id", "team")},
            **{name: getattr(one.alert, name) for name in ("pending_since", "opened_at", "summary", "details")},
        }
        for one in result.heard
    ]
    return {"alerts": heard, "lacks": result.lacks}

"""The page of one group: what its template gets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

from streaming_app.alerts.catalog import rules
from streaming_app.alerts.problem import FIRING, Problem, severity_rank
from streaming_app.groups.snapshot import AWAY, AWAY_EPOCH
from streaming_app.groups.task_copies import ACTIVE, TaskCopy, format_task
from streaming_app.health.verdict import Verdict
from streaming_app.lag.status import LEFT_OVER
from streaming_app.lag.status import OK as IN_TIME
from streaming_app.notify.mutes import Mute
from streaming_app.queries.behind_series import BehindSeries
from streaming_app.queries.facts import GroupFacts
from streaming_app.queries.history import Owned
from streaming_app.queries.lag_chart import LagChart, RateChart, behind_chart, rate_chart
from streaming_app.queries.rate_series import Rate
from streaming_app.queries.topics import BY_PATTERN, Served, Topic, served
from streaming_app.queries.topology_diff import TopologyDiff
from streaming_app.text import duration, host_of
from streaming_app.web.descriptions import NodeRow, node_rows, status_text
from streaming_app.web.group_summary import GroupSummary
from streaming_app.web.instant import Instant, Then, instant_view, tasks_by_partition
from streaming_app.web.task_matrix import Matrix, lag_by_task, task_matrix, with_copies
from streaming_app.web.timeline import (
    Events,
    Judged,
    Tick,
    Timeline,
    causes_text,
    event_text,
    judgements,
    ticks,
    timeline,
)
from streaming_app.web.tracks import Place, Tracks, places, tracks
from streaming_app.web.window import Window
from streaming_app.web.words import Meaning, description_meaning, state_text

Row = Mapping[str, Any]
SHOWN_MEMBERS = 500
SHOWN_LAG = 200
SHOWN_TAGS = 10
SHOWN_VERDICTS = 50
SHOWN_ALERTS = 50
"""Of one rule: a flood of them does not hide those of another, and the page stays small."""


@dataclass(frozen=True)
class RuleText:
    """The section of the runbook about an alert, with queries for the group."""

    meaning: str
    steps: tuple[str, ...]
    queries: Mapping[str, str]


@dataclass(frozen=True)
class EventRow:
    """A line of the table of events."""

    at: datetime | None
    text: str
    member_id: str | None
    kind: str


@dataclass(frozen=True)
class MemberRow:
    """A line of the table of members."""

    row: Row
    active: int
    standby: int
    moving: int
    served: Served

    @property
    def state(self) -> str | None:
        """Its state; AWAY of a static member that left temporarily, whose record keeps the state that it had."""
        return AWAY if self.row["member_epoch"] == AWAY_EPOCH else self.row["member_state"]

    @property
    def host(self) -> str | None:
        """Where its client is, as the broker saw it."""
        return host_of(self.row["client_host"])

    @property
    def place(self) -> Sequence[tuple[str, str]]:
        """Where it is, as far as the client says it: name and value."""
        endpoint, tags = self.row.get("user_endpoint"), dict(self.row.get("client_tags") or ())
        known = {
            "rack": self.row.get("rack_id"),
            "endpoint": endpoint,
            **({"serves": self.served.active, "has copies of": self.served.standby} if endpoint else {}),
            "process": self.row.get("process_id"),
            **{f"tag {name}": value for name, value in islice(tags.items(), SHOWN_TAGS)},
        }
        return [(name, value) for name, value in known.items() if value]


@dataclass(frozen=True)
class History:
    """What the tables hold of a group in a window, besides its events and verdicts."""

    times: tuple[datetime, datetime]
    """What the series are of: a range up to now begins and ends at a whole minute."""
    lag_chart: LagChart | None = None
    behind: BehindSeries | None = None
    rates: Mapping[int, Rate] = field(default_factory=dict)
    rate_bins: int = 1
    owned: Mapping[str, Owned] | None = None
    """None: the events of assignments are too many."""
    alerts: Sequence[Problem] = ()
    mutes: Sequence[Mute] = ()


@dataclass(frozen=True)
class Chart:
    """The shapes of the series, and where they are in the window: x and width."""

    x: float
    width: float
    lag: LagChart | None
    behind: LagChart | None
    rates: RateChart | None


@dataclass(frozen=True)
class BehindTask:
    """A task, or a partition of a group without tasks, that does not keep up."""

    name: str
    status: str
    seconds: float | None
    lag: int | None
    host: str | None


@dataclass(frozen=True)
class GroupView:
    """Everything about one group."""

    row: Row
    state: str
    """What its state means."""
    description: Meaning
    causes: str
    """Why it needs a new assignment."""
    alerts: Sequence[tuple[Problem, RuleText | None]]
    matrix: Matrix
    members: Sequence[MemberRow]
    timeline: Timeline
    instant: Instant | None
    """None without an instant in the URL, and if no event is that old."""
    events: Sequence[EventRow]
    """The newest first."""
    all_events: int
    """In the window."""
    described: Row | None
    described_text: str | None
    nodes: Sequence[NodeRow]
    diff: TopologyDiff | None
    lag: Sequence[Row]
    lag_partitions: int
    charts: Chart
    tracks: Tracks
    places: Sequence[Place]
    too_many_assignments: bool
    """So many that it is not known who had which task when."""
    behind: Sequence[BehindTask] = ()
    """The tasks that do not keep up, the furthest behind first."""
    changes: Sequence[EventRow] = ()
    """The last changes before what the verdict says began, the newest first."""
    facts: GroupFacts = field(default_factory=GroupFacts)
    sizes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """How many partitions a topic has, as `Topic.text` does, by subtopology and topic."""
    by_pattern: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The topics that patterns match, by subtopology."""
    judged: Sequence[Judged] = ()
    """The newest verdicts up to the end of the window, the newest first."""
    judged_then: Judged | None = None
    """The verdict at the instant; None without one, and if none is known of that time."""


def group_view(  # noqa: PLR0913 - what is known about a group
    row: Row,
    window: Window,
    *,
    events: Events,
    listed: tuple[Sequence[Row], int],
    alerts: Iterable[Problem],
    lag: Sequence[Row],
    history: History,
    then: Then | None,
    described: Row | None,
    diff: TopologyDiff | None,
    copies: Iterable[TaskCopy] = (),
    facts: GroupFacts | None = None,
    topics: Sequence[Topic] = (),
    health: tuple[Sequence[Row], Verdict | None] = ((), None),
    changes: Sequence[Row] = (),
) -> GroupView:
    """Return the page of a row of `groups`.

    `events`, `listed` and `history` are of the window, `then` is of its instant; `lag` and `copies` are the rows of
    those tables. `health` are the verdicts of the window, the oldest first, and the one of now.
    """
    newest, found = listed
    judged = judgements(*health)
    task_of = tasks_by_partition(lag)
    copies = list(copies)
    line = timeline(row, events, window, judged)
    charts = _charts(history, window)
    more = tracks(
        window,
        series=history.behind,
        owned=history.owned or {},
        alerts=history.alerts,
        mutes=history.mutes,
        events=events.drawn,
        copies=copies,
        series_window=history.times,
    )
    return GroupView(
        row=row,
        state=state_text(row["state"]),
        description=description_meaning(row["description_status"]),
        causes=causes_text(row["causes_since_assignment"]),
        alerts=[(alert, rule_text(alert)) for alert in alerts if alert.group_id == row["group_id"]],
        matrix=task_matrix(row["members"] or (), with_copies(row["assignments"] or (), copies), lag_by_task(lag)),
        members=list(_members(row, topics))[:SHOWN_MEMBERS],
        timeline=line,
        instant=instant_view(then, window.at, row, task_of) if then and window.at else None,
        events=_event_rows(newest),
        all_events=found,
        described=described,
        nodes=node_rows(described) if described else [],
        described_text=status_text(described) if described else None,
        diff=diff if diff and diff.changes else None,
        lag=lag[:SHOWN_LAG],
        lag_partitions=len(lag),
        charts=charts,
        tracks=more,
        places=places(more, _labels(line, charts)),
        too_many_assignments=history.owned is None,
        behind=behind_tasks(lag, row),
        changes=_event_rows(changes),
        facts=facts or GroupFacts(),
        sizes={(one.subtopology_id, one.name): one.text for one in topics if one.text},
        by_pattern=_by_pattern(topics),
        judged=judged[: -SHOWN_VERDICTS - 1 : -1],
        judged_then=next((one for one in reversed(judged) if window.until and one.at <= window.until), None),
    )


def _event_rows(events: Iterable[Row]) -> list[EventRow]:
    return [EventRow(event["at"], event_text(event), event["member_id"], event["kind"]) for event in events]


def _charts(history: History, window: Window) -> Chart:
    behind, length = history.behind, window.end - window.begin
    return Chart(
        x=round(1_000 * ((history.times[0] - window.begin) / length), 2),
        width=round(1_000 * ((history.times[1] - history.times[0]) / length), 2),
        lag=history.lag_chart,
        behind=behind_chart(behind.group, behind.bins, *history.times) if behind else None,
        rates=rate_chart(history.rates, history.rate_bins),
    )


def _labels(line: Timeline, charts: Chart) -> dict[str, str | None]:
    """Return what each track is called; None for what is not known at all."""
    behind, rates, lag = charts.behind, charts.rates, charts.lag
    return {
        "health": "Health",
        "alerts": "Alerts",
        "behind": f"Behind ≤ {duration(behind.most)}" if behind else None,
        "rates": f"Records/s ≤ {rates.most:,.0f}" if rates else None,
        "tasks": "Tasks",
        "restores": "Restores",
        "members": f"Members ≤ {line.most_members:,}",
        "assignments": "Assignments",
        "changes": "Deployments",
        "state": "State",
        "lag": f"Lag ≤ {lag.most:,}" if lag else None,
        "description": "Description",
    }


def behind_tasks(lag: Iterable[Row], row: Row) -> list[BehindTask]:
    """Return the tasks of which a partition does not keep up, by rows of `lag`, the furthest behind first."""
    owners = {
        format_task((task["subtopology_id"], task["partition"])): task["member_id"]
        for task in row["assignments"] or ()
        if task["role"] == ACTIVE and task["current"]
    }
    hosts = _hosts(row)
    found: dict[str, BehindTask] = {}
    late = [one for one in lag if one["status"] not in {IN_TIME, LEFT_OVER}]
    for one in sorted(late, key=lambda one: (-(one["lag_seconds"] or 0), -(one["lag"] or 0))):
        name = one["task_id"] or f"{one['topic']}-{one['partition']}"
        host = hosts.get(owners.get(name, ""))
        found.setdefault(name, BehindTask(name, one["status"], one["lag_seconds"], one["lag"], host))
    return list(found.values())


def _by_pattern(topics: Iterable[Topic]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in topics:
        if one.kind == BY_PATTERN:
            found.setdefault(one.subtopology_id, []).append(one.name)
    return found


@dataclass(frozen=True)
class OtherGroupView:
    """Everything about a group that is not a streams group."""

    group: GroupSummary
    alerts: Sequence[tuple[Problem, RuleText | None]]
    window: Window
    ticks: Sequence[Tick]
    lag: Sequence[Row]
    lag_partitions: int
    charts: Chart
    members: Sequence[Row]
    """By the titles of `describe --members`, at most `SHOWN_MEMBERS`."""


def other_group_view(  # noqa: PLR0913, PLR0917 - what is known about a group
    group: GroupSummary,
    window: Window,
    alerts: Iterable[Problem],
    lag: Sequence[Row],
    history: History,
    members: Sequence[Row],
) -> OtherGroupView:
    """Return the page of a group that is not a streams group; the arguments are as those of `group_view`."""
    return OtherGroupView(
        group=group,
        alerts=[(alert, rule_text(alert)) for alert in alerts if alert.group_id == group.group_id],
        window=window,
        ticks=ticks(window.begin, window.end),
        lag=lag[:SHOWN_LAG],
        lag_partitions=len(lag),
        charts=_charts(history, window),
        members=members[:SHOWN_MEMBERS],
    )


def rule_text(alert: Problem) -> RuleText | None:
    """Return the runbook's section about an alert; None if this release has no such rule."""
    rule = rules().get(alert.rule)
    if rule is None:
        return None
    queries = rule.queries_for(alert.group_id) if alert.group_id is not None else rule.queries
    return RuleText(rule.meaning, rule.steps, queries)


@dataclass(frozen=True)
class AlertsOfRule:
    """The alerts of one rule and severity in one state, the oldest first."""

    first: Problem
    shown: Sequence[Problem]
    total: int
    text: RuleText | None
    """With queries for the group if there is one alert; those of many are on the pages of the groups."""


def alerts_by_rule(alerts: Iterable[Problem]) -> list[AlertsOfRule]:
    """Return alerts by rule: those that fire first, the most severe first; of each rule the oldest."""
    found: dict[tuple[bool, int, str], list[Problem]] = {}
    for alert in alerts:
        found.setdefault((alert.state != FIRING, severity_rank(alert.severity), alert.rule), []).append(alert)
    return [_alerts_of_rule(sorted(found[key], key=_begin_of)) for key in sorted(found)]


def _alerts_of_rule(alerts: Sequence[Problem]) -> AlertsOfRule:
    text = rule_text(alerts[0])
    if text and len(alerts) > 1:
        text = replace(text, queries={})
    return AlertsOfRule(alerts[0], alerts[:SHOWN_ALERTS], len(alerts), text)


def _begin_of(alert: Problem) -> tuple[datetime, str]:
    return alert.opened_at or alert.since, alert.group_id or ""


def hosts_of(row: Row) -> list[Row]:
    """Return the assignments of a group, each with the host of its member."""
    hosts = _hosts(row)
    return [{**task, "client_host": hosts.get(task["member_id"])} for task in row["assignments"] or ()]


def _hosts(row: Row) -> dict[str, str | None]:
    return {member["member_id"]: host_of(member["client_host"]) for member in row["members"] or ()}


def _members(row: Row, topics: Sequence[Topic]) -> Iterable[MemberRow]:
    tasks: dict[str, list[Row]] = {}
    for task in row["assignments"] or ():
        tasks.setdefault(task["member_id"], []).append(task)
    ordered = sorted(row["members"] or (), key=lambda one: (one["client_host"] or "", one["member_id"]))
    for member in ordered:
        own = tasks.get(member["member_id"], [])
        held = [task for task in own if task["current"]]
        active = sum(task["role"] == "active" for task in held)
        moving = sum(task["current"] != task["target"] or task["pending_revocation"] for task in own)
        yield MemberRow(member, active, len(held) - active, moving, served(held, topics))

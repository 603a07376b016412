"""The overview: its groups, which of them are shown, in which order. Pure.

The default order puts trouble first: the most severe verdict or alert; then the worst verdict; within these groups
that were known before today, so that no flood of new ones hides them, then the largest lag, then streams groups, then
the name. Whether a group processes is what its verdict says, and not its state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from streaming_app.alerts.problem import INFO, severity_rank
from streaming_app.groups.state_rules import DEAD
from streaming_app.health.verdict import OK, VERDICTS, WORST_FIRST
from streaming_app.health.verdict import UNKNOWN as UNKNOWN_HEALTH
from streaming_app.health.verdict import trouble as health_trouble
from streaming_app.queries.groups import TYPES
from streaming_app.web.group_summary import STREAMS, GroupSummary
from streaming_app.web.words import label_text

PAGE_SIZE = 100
FIRING_ONLY, MOVING_ONLY, BEHIND_ONLY = "alerts", "moving", "behind"
SHOW = {
    "": "all groups",
    FIRING_ONLY: "with alerts",
    MOVING_ONLY: "with tasks on the move",
    BEHIND_ONLY: "with lag, or unknown lag",
}
NOT_IN_LOG = "none"
"""What stands for the state of a classic group with members."""
_STATES = ("NotReady", "Unknown", "Assigning", "Reconciling", "Stable", NOT_IN_LOG, "Empty", "Dead")


@dataclass(frozen=True)
class Query:
    """What a reader asks for."""

    text: str = ""
    """Part of the group id, or of what else is searched, in any letter case."""
    states: frozenset[str] = frozenset()
    """Empty: all but Dead."""
    types: frozenset[str] = frozenset()
    """Empty: all."""
    label: str = ""
    """As `label_text` writes it."""
    description: str = ""
    show: str = ""
    """A key of `SHOW`."""
    sort: str = "trouble"
    """A key of `ORDERS`."""
    page: int = 1
    cluster: str = ""
    """Empty: the one that the page is about by default."""
    verdicts: frozenset[str] = frozenset()
    """Empty: all, and groups without one."""
    cause: str = ""
    """Only groups whose problem has this cause."""

    @classmethod
    def parse(
        cls,
        parameters: Mapping[str, str],
        states: Iterable[str],
        types: Iterable[str] = (),
        verdicts: Iterable[str] = (),
    ) -> Query:
        """Return the query of a URL; what is not known there is left out."""
        page = parameters.get("page", "")
        show, sort, description = (parameters.get(name, "") for name in ("show", "sort", "description"))
        return cls(
            text=parameters.get("q", ""),
            states=frozenset(states).intersection(_STATES),
            types=frozenset(types) & TYPES.keys(),
            verdicts=frozenset(verdicts) & VERDICTS.keys(),
            label=parameters.get("label", ""),
            cluster=parameters.get("cluster", ""),
            cause=parameters.get("cause", ""),
            description=description,
            show=show if show in SHOW else "",
            sort=sort if sort in ORDERS else "trouble",
            page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 7 else 1,  # noqa: PLR2004
        )

    def url(self, **changes: Any) -> str:  # noqa: ANN401 - a value of any field
        """Return the relative URL of this query with some values changed. Another filter begins at the first page."""
        values = {**vars(self), "page": 1, **changes}
        pairs = [
            ("cluster", values["cluster"]),
            ("q", values["text"]),
            *(("type", one) for one in sorted(values["types"])),
            *(("health", one) for one in sorted(values["verdicts"])),
            ("label", values["label"]),
            ("cause", values["cause"]),
            *(("state", state) for state in sorted(values["states"])),
            ("description", values["description"]),
            ("show", values["show"]),
            ("sort", "" if values["sort"] == "trouble" else values["sort"]),
            ("page", "" if values["page"] == 1 else str(values["page"])),
        ]
        encoded = urlencode([(name, value) for name, value in pairs if value], errors="surrogatepass")
        return f"./?{encoded}" if encoded else "./"

    def with_state(self, state: str) -> str:
        """Return the URL that also shows groups in this state, or no longer."""
        return self.url(states=self.states ^ {state})

    def with_type(self, group_type: str) -> str:
        """Return the URL that also shows groups of this type, or no longer."""
        return self.url(types=self.types ^ {group_type})

    def with_verdict(self, verdict: str) -> str:
        """Return the URL that also shows groups with this verdict, or no longer."""
        return self.url(verdicts=self.verdicts ^ {verdict})

    def with_cause(self, cause: str) -> str:
        """Return the URL of the groups whose problems have this cause."""
        return Query(cluster=self.cluster, cause=cause).url()

    @property
    def folds(self) -> bool:
        """Whether groups with one cause are one entry: what was searched for, and other orders, are shown as is."""
        return self.sort == "trouble" and not self.text and not self.cause

    @property
    def all_url(self) -> str:
        """The URL without any filter."""
        return Query(cluster=self.cluster).url()

    @property
    def unfiltered_url(self) -> str:
        """The URL of the same order without any filter."""
        return Query(cluster=self.cluster, sort=self.sort).url()

    @property
    def filters(self) -> bool:
        """Whether it leaves out any group that exists."""
        return self != Query(sort=self.sort, page=self.page, cluster=self.cluster)


SHOWN_OF_CAUSE = 30
"""Groups of a cause in its entry; a link has them all."""


@dataclass(frozen=True)
class Entry:
    """A group, or several of those that are shown whose problems have one cause."""

    groups: Sequence[GroupSummary]
    """The worst first; of a cause at most `SHOWN_OF_CAUSE`."""
    total: int = 1
    lag: int | None = None
    """The sum over all of a cause; None if it is of none known."""
    lag_is_partial: bool = False
    lag_seconds: float | None = None
    members: int = 0
    tasks: int = 0

    @property
    def cause(self) -> str | None:
        """The cause; None of an entry that is one group."""
        return self.groups[0].cause if self.total > 1 else None


@dataclass(frozen=True)
class Overview:
    """One page of the overview."""

    query: Query
    entries: Sequence[Entry]
    matching: int
    """Groups that the query finds, on all pages."""
    total: int
    """Groups that exist."""
    pages: int
    by_state: Mapping[str, int]
    """Number of groups by state, most troublesome first, without regard to the query's states."""
    by_verdict: Mapping[str, int]
    """Number of groups by verdict, the worst first, without regard to the query's verdicts."""
    by_type: Mapping[str, int]
    """Number of groups by type, without regard to the query's types; only streams groups: empty."""
    labels: Sequence[str]
    """All labels that groups have."""
    firing: Mapping[str, int]
    """Number of alerts about groups that fire, by severity."""
    moving: int
    troubled: int
    """Groups that do not process what they should."""
    first: int
    """The number of the first row, from 1."""
    found: Mapping[str, str]
    """By group that is not found by its id: what is of this name, such as `host 10.0.0.1`."""
    number: int = 1
    """Of the page."""
    of_entries: int = 0
    """Entries on all pages."""

    @property
    def rows(self) -> Sequence[GroupSummary]:
        """All groups on the page."""
        return [group for one in self.entries for group in one.groups]


_NOT_SEVERE = severity_rank(INFO)  # an info does not go before a verdict
_NO_VERDICT, _UNKNOWN = WORST_FIRST.index(OK), WORST_FIRST.index(UNKNOWN_HEALTH)


def trouble(group: GroupSummary) -> tuple[Any, ...]:
    """Return the sort key: trouble first."""
    by_severity, by_verdict = health_trouble(group.health) if group.health else (_NOT_SEVERE, _NO_VERDICT)
    if group.verdict == UNKNOWN_HEALTH:
        by_verdict = _UNKNOWN
    by_severity = min(by_severity, *(severity_rank(one.severity) for one in group.alerts[:1]), _NOT_SEVERE)
    lag = -(group.lag_seconds or 0), -(group.lag or 0)
    return by_severity, by_verdict, group.is_new, *lag, group.group_type != STREAMS, group.group_id


ORDERS: Mapping[str, Callable[[GroupSummary], Any]] = {
    "trouble": trouble,
    "name": lambda group: group.group_id,
    "since": lambda group: (-group.health.since.timestamp() if group.health else 1, group.group_id),
    "lag": lambda group: (-(-1 if group.lag is None else group.lag), group.group_id),
    "time-lag": lambda group: (-(-1 if group.lag_seconds is None else group.lag_seconds), group.group_id),
    "members": lambda group: (-group.members, group.group_id),
    "tasks": lambda group: (-group.moving, -group.tasks, group.group_id),
}
ASCENDING = frozenset({"name", "since"})
"""Those of `ORDERS` that begin with the smallest value of their column; all others begin with the largest."""


def overview(
    groups: Sequence[GroupSummary],
    query: Query,
    page_size: int = PAGE_SIZE,
    search: Callable[[str], Mapping[str, str]] = lambda _: {},
) -> Overview:
    """Return the page of the overview that the query asks for; the last one if there are fewer.

    `search` finds groups by what else has this text, as `Snapshot.search` does.
    """
    found = search(query.text) if query.text else {}
    text = query.text.casefold()
    filtered = [
        one
        for one in groups
        if (not text or text in one.group_id.casefold() or one.group_id in found)
        and (not query.description or one.description_status == query.description)
        and (not query.label or query.label in map(label_text, one.labels))
        and (not query.cause or query.cause == one.cause)
        and _is_shown(one, query.show)
    ]
    wanted = query.states or set(_STATES) - {DEAD}
    in_state = [one for one in filtered if _state(one) in wanted]
    of_type = [one for one in in_state if not query.types or one.group_type in query.types]
    matching = [one for one in of_type if not query.verdicts or one.verdict in query.verdicts]
    verdicts = Counter(one.verdict for one in of_type)
    counts = Counter(_state(one) for one in filtered if not query.types or one.group_type in query.types)
    types = Counter(one.group_type for one in in_state)
    has_others = any(one.group_type != STREAMS for one in groups)
    ordered = sorted(matching, key=ORDERS[query.sort])
    entries = folded(ordered) if query.folds else [Entry([one]) for one in ordered]
    pages = max(1, -(-len(entries) // page_size))
    page = min(query.page, pages)
    first = (page - 1) * page_size
    return Overview(
        query=query,
        entries=entries[first : first + page_size],
        number=page,
        of_entries=len(entries),
        matching=len(matching),
        total=sum(one.state != DEAD for one in groups),
        pages=pages,
        by_state={state: counts[state] for state in _STATES if counts[state] or state in query.states},
        by_verdict={one: verdicts[one] for one in WORST_FIRST if verdicts[one] or one in query.verdicts},
        by_type={one: types[one] for one in TYPES if types[one] or one in query.types} if has_others else {},
        labels=sorted({label_text(label) for one in groups for label in one.labels}),
        firing=Counter(alert.severity for one in groups for alert in one.alerts),
        moving=sum(one.moving for one in groups),
        troubled=sum(one.is_troubled for one in groups),
        first=first + 1,
        found={group_id: what for group_id, what in found.items() if text not in group_id.casefold()},
    )


def folded(ordered: Iterable[GroupSummary]) -> list[Entry]:
    """Return the entries of groups in their order: those with one cause where the worst of them is."""
    by_cause: dict[str, list[GroupSummary]] = {}
    for one in ordered:
        by_cause.setdefault(one.cause or f"\0{one.group_id}", []).append(one)
    return [_entry(those) for those in by_cause.values()]


def _entry(groups: Sequence[GroupSummary]) -> Entry:
    if len(groups) == 1:
        return Entry(groups)
    known = [one.lag for one in groups if one.lag is not None]
    return Entry(
        groups=groups[:SHOWN_OF_CAUSE],
        total=len(groups),
        lag=sum(known) if known else None,
        lag_is_partial=len(known) < len(groups) or any(one.lag_is_partial for one in groups),
        lag_seconds=max((one.lag_seconds for one in groups if one.lag_seconds is not None), default=None),
        members=sum(one.members for one in groups),
        tasks=sum(one.tasks for one in groups),
    )


def _state(group: GroupSummary) -> str:
    return group.state or NOT_IN_LOG


def _is_shown(group: GroupSummary, show: str) -> bool:
    return (
        not show
        or (show == FIRING_ONLY and bool(group.alerts))
        or (show == MOVING_ONLY and group.moving > 0)
        or (show == BEHIND_ONLY and (bool(group.lag) or group.lag_is_partial))
    )

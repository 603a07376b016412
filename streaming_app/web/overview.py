"""The overview: which groups it shows, and in which order. Pure.

The default order (`trouble`) sorts by these keys: the most severe verdict or alert; the worst verdict; groups older
than a day before new ones, so that no flood of new groups hides them; the largest lag; streams groups before others;
the name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from streaming_app.alerts.alert import FIRING, INFO, Alert, severity_rank
from streaming_app.groups.state_rules import DEAD
from streaming_app.health.verdict import BAD, OK, UNKNOWN, VERDICTS, WORST_FIRST
from streaming_app.queries.group_list import STREAMS, TYPES
from streaming_app.queries.lag import Lag, sum_of
from streaming_app.text import EPOCH, rank
from streaming_app.web.words import label_text

Row = Mapping[str, Any]
PAGE_SIZE = 100
FIRING_ONLY, MOVING_ONLY, BEHIND_ONLY = "alerts", "moving", "behind"
SHOW = {
    "": "all groups",
    FIRING_ONLY: "with alerts",
    MOVING_ONLY: "with tasks on the move",
    BEHIND_ONLY: "with lag, or unknown lag",
}
COLUMNS = {
    "since": "For",
    "day": "24 h",
    "state": "State",
    "lag": "Lag, offsets",
    "time-lag": "Lag, time",
    "members": "Members",
    "tasks": "Tasks",
    "deployed": "Deployed",
    "description": "Description",
}
"""The columns of the list that a reader may leave out."""
NOT_IN_LOG = "none"
"""The shown state of a classic group with members, which the log does not have."""
_STATES = ("NotReady", "Unknown", "Assigning", "Reconciling", "Stable", NOT_IN_LOG, "Empty", "Dead")
SHOWN_OF_CAUSE = 30
"""How many groups with one cause their entry shows; a link leads to all."""

_NOT_SEVERE = severity_rank(INFO)


def _trouble(one: Row) -> tuple[Any, ...]:
    by_severity = _NOT_SEVERE  # severity info does not come before a verdict
    if levels := [each for each in (one["severity"], one["alert_severity"]) if each]:
        by_severity = min(by_severity, *map(severity_rank, levels))
    by_verdict = rank(one["verdict"] or OK, WORST_FIRST)
    lag = -(one["lag_seconds"] or 0), -(one["lag"] or 0)
    return by_severity, by_verdict, one["is_new"], *lag, one["group_type"] != STREAMS, one["group_id"]


def _largest(*columns: str) -> Callable[[Row], Any]:
    return lambda one: (*(1 if one[name] is None else -one[name] for name in columns), one["group_id"])


ORDERS: Mapping[str, Callable[[Row], Any]] = {
    "trouble": _trouble,
    "name": lambda one: one["group_id"],
    "since": lambda one: (one["since"] is None, -(one["since"] or EPOCH).timestamp(), one["group_id"]),
    "lag": _largest("lag"),
    "time-lag": _largest("lag_seconds"),
    "members": _largest("member_count"),
    "tasks": _largest("moving", "tasks"),
}
ASCENDING = frozenset({"name", "since"})
"""The orders that begin with the smallest value of their column; all others begin with the largest."""


@dataclass(frozen=True)
class Query:
    """The query of a URL. The fields are its parameters; parameters with default values are left out."""

    cluster: str = ""
    q: str = ""
    """Part of the group id or of other searched text, in any letter case."""
    type: frozenset[str] = frozenset()
    """Empty: all. The same is true for every other field."""
    health: frozenset[str] = frozenset()
    label: str = ""
    """A label in the form of `label_text`."""
    cause: str = ""
    """Only groups whose alert has this cause."""
    state: frozenset[str] = frozenset()
    """Empty: all except Dead."""
    description: str = ""
    show: str = ""
    sort: str = "trouble"
    without: frozenset[str] = frozenset()
    page: int = 1

    @classmethod
    def parse(cls, parameters: QueryParams) -> Query:
        """Return the query of a URL; unknown parameters and values are ignored."""
        found: dict[str, Any] = {}
        for one in fields(cls):
            known: Collection[str] | None = _KNOWN.get(one.name)
            text = parameters.get(one.name, "")
            if one.name == "page":
                found["page"] = max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1  # noqa: PLR2004
            elif isinstance(one.default, frozenset):
                found[one.name] = frozenset(parameters.getlist(one.name)).intersection(known or ())
            else:
                found[one.name] = text if known is None or text in known else one.default
        return cls(**found)

    def url(self, **changes: Any) -> str:  # noqa: ANN401 - a value of any field
        """Return the relative URL of this query with some changed values. It begins at the first page again."""
        changed = replace(self, **{"page": 1, **changes})
        pairs = [
            (one.name, value)
            for one in fields(self)
            for values in [getattr(changed, one.name)]
            if values and values != one.default
            for value in (sorted(values) if isinstance(values, frozenset) else [values])
        ]
        encoded = urlencode(pairs, errors="surrogatepass")
        return f"./?{encoded}" if encoded else "./"

    def toggled(self, name: str, value: str) -> str:
        """Return the URL that adds groups with this type, verdict or state, or removes them if they are shown."""
        return self.url(**{name: getattr(self, name) ^ {value}})

    def only(self, **values: str) -> str:
        """Return the URL of the same cluster with only these values."""
        return Query(cluster=self.cluster).url(**values)

    @property
    def folds(self) -> bool:
        """Whether groups with the same cause are one entry. In a search, or another order, they are not."""
        return self.sort == "trouble" and not self.q and not self.cause

    @property
    def filters(self) -> bool:
        """Whether the query leaves out groups."""
        return self != Query(sort=self.sort, page=self.page, cluster=self.cluster, without=self.without)


_KNOWN: Mapping[str, Collection[str]] = {
    "type": TYPES,
    "health": VERDICTS,
    "state": _STATES,
    "show": SHOW,
    "sort": ORDERS,
    "without": COLUMNS,
}


def overview(
    groups: Iterable[Row],
    query: Query,
    page_size: int = PAGE_SIZE,
    search: Callable[[str], Mapping[str, str]] = lambda _: {},
    alerts: Iterable[Alert] = (),
) -> dict[str, Any]:
    """Return the values for the template. If there are fewer pages than the query asks for, they are of the last page.

    `search` finds groups by text other than their id, as `queries.describe` does: group id -> the found text. Shown of
    `alerts`, those of the cluster, are only their numbers.
    """
    found, text = search(query.q) if query.q else {}, query.q.casefold()
    every = list(groups)
    filtered = [
        one
        for one in every
        if (not text or text in one["group_id"].casefold() or one["group_id"] in found)
        and (not query.description or query.description == one["description_status"])
        and (not query.label or query.label in map(label_text, one["labels"]))
        and (not query.cause or query.cause == one["cause"])
        and _is_shown(one, query.show)
    ]
    wanted = query.state or {*_STATES} - {DEAD}
    in_state = [one for one in filtered if _state(one) in wanted]
    of_type = [one for one in in_state if not query.type or one["group_type"] in query.type]
    matching = [one for one in of_type if not query.health or one["verdict"] in query.health]
    ordered = sorted(matching, key=ORDERS[query.sort])
    entries = folded(ordered) if query.folds else [[one] for one in ordered]
    pages = max(1, -(-len(entries) // page_size))
    page = min(query.page, pages)
    first = (page - 1) * page_size
    shown = [entry(those) for those in entries[first : first + page_size]]
    states = (_state(one) for one in filtered if not query.type or one["group_type"] in query.type)
    types = _counts((one["group_type"] for one in in_state), TYPES, query.type)
    return {
        "query": query,
        "entries": shown,
        "rows": [one for each in shown for one in each["groups"]],
        "page": page,
        "pages": pages,
        "first": first + 1,
        "of_entries": len(entries),
        "matching": len(ordered),
        "has_lag": any(one["partitions"] for one in every),
        "total": sum(one["state"] != DEAD for one in every),
        "by_state": _counts(states, _STATES, query.state),
        "by_verdict": _counts((one["verdict"] for one in of_type), WORST_FIRST, query.health),
        "by_type": types if any(one["group_type"] != STREAMS for one in every) else {},
        "labels": sorted(map(label_text, {label for one in every for label in one["labels"]})),
        "firing": Counter(one.severity for one in alerts if one.state == FIRING and one.group_id is not None),
        "moving": sum(one["moving"] or 0 for one in every),
        "troubled": sum(one["verdict"] in BAD for one in every),
        "not_known": sum(one["verdict"] in {None, UNKNOWN} and one["state"] != DEAD for one in every),
        "found": {group_id: what for group_id, what in found.items() if text not in group_id.casefold()},
    }


def folded(ordered: Iterable[Row]) -> list[list[Row]]:
    """Return the groups of each entry, in order. Groups with the same cause are one entry, where the worst one is."""
    by_cause: dict[object, list[Row]] = {}
    for one in ordered:
        by_cause.setdefault(one["cause"] or (one["group_id"],), []).append(one)
    return list(by_cause.values())


def entry(groups: Sequence[Row]) -> Row:
    """Return a row of the list: a group, or the groups with one cause, with sums in the columns of a group."""
    lag = sum_of(map(Lag.of, groups))
    return {
        **(lag._asdict() if lag else {}),
        "groups": groups[:SHOWN_OF_CAUSE],
        "total": len(groups),
        "cause": groups[0]["cause"] if len(groups) > 1 else None,
        "member_count": sum(one["member_count"] or 0 for one in groups),
        "tasks": sum(one["tasks"] or 0 for one in groups),
    }


def _counts(values: Iterable[str], names: Iterable[str], chosen: Collection[str]) -> dict[str, int]:
    """Return how often each name occurs, without names that do not occur, unless they are chosen."""
    found = Counter(values)
    return {name: found[name] for name in names if found[name] or name in chosen}


def _state(group: Row) -> str:
    return group["state"] or NOT_IN_LOG


def _is_shown(group: Row, show: str) -> bool:
    return (
        not show
        or (show == FIRING_ONLY and bool(group["alerts"]))
        or (show == MOVING_ONLY and bool(group["moving"]))
        or (show == BEHIND_ONLY and bool(group["lag"] or group["unknown_partitions"]))
    )

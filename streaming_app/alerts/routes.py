"""To which sinks an alert goes, and which team owns a group: routes, in the habit of Alertmanager's. Pure.

The routes are tried in their order. The first one that matches an alert decides, and the next ones only if it says
`continue`; an alert that none matches goes to every sink. A team owns the groups of the first route with a team that
matches them, whatever its severities: the owner does not change with how bad it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from streaming_app.alerts.alert import Alert
from streaming_app.regex import Regex

_CACHED_GROUPS = 1 << 16


@dataclass(frozen=True)
class Route:
    """One route."""

    groups: Regex | None = None
    """The whole id of a group must match it; None: also alerts about the job or the cluster."""
    severities: frozenset[str] = frozenset()
    """Only alerts of one of these; empty: of any."""
    team: str | None = None
    sinks: Sequence[str] | None = None
    """None: every sink."""
    continues: bool = False

    def owns(self, group_id: str | None) -> bool:
        """Tell whether it is about this group, or, for None, about the job and the cluster."""
        return self.groups is None or (group_id is not None and self.groups.matches(group_id))


class Routes:
    """The routes of a configuration; for one thread at a time."""

    def __init__(self, routes: Sequence[Route] = ()) -> None:
        self._routes = tuple(routes)
        self._of_group = lru_cache(_CACHED_GROUPS)(self._find)

    @property
    def have_teams(self) -> bool:
        """Whether any route names a team."""
        return any(route.team for route in self._routes)

    def team_of(self, group_id: str | None) -> str | None:
        """Return the team that owns a group; None if no route names one."""
        return next((route.team for route in self._of_group(group_id) if route.team), None)

    def sinks_of(self, alert: Alert, sinks: Sequence[str]) -> tuple[str, ...]:
        """Return those of all `sinks` that the alert goes to, each once."""
        found: dict[str, None] = {}
        matched = False
        for route in self._of_group(alert.group_id):
            if route.severities and alert.severity not in route.severities:
                continue
            matched = True
            found |= dict.fromkeys(sinks if route.sinks is None else route.sinks)
            if not route.continues:
                break
        return tuple(sink for sink in sinks if sink in found) if matched else tuple(sinks)

    def _find(self, group_id: str | None) -> tuple[Route, ...]:
        return tuple(route for route in self._routes if route.owns(group_id))


NO_ROUTES = Routes()

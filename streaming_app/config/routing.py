"""The section `routes:` of the configuration: who owns which groups, and where their alerts go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from streaming_app.alerts.routes import Route, Routes
from streaming_app.config.key_path import closest_name
from streaming_app.section import Pattern, Section

_Name = Annotated[str, Field(min_length=1, max_length=200)]


def as_list(given: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return a list of one text, so that a single one needs no list."""
    return [given] if isinstance(given, str) else given


class RouteSettings(Section):
    """An entry of `routes`."""

    groups: Pattern | None = None
    """Groups whose whole id matches; None: every alert, also those about the job and the cluster."""
    severity: Annotated[tuple[Literal["critical", "warning", "info"], ...], BeforeValidator(as_list)] = ()
    """Only alerts of these severities; default of any."""
    team: _Name | None = None
    """Who owns these groups."""
    sinks: Annotated[tuple[_Name, ...], BeforeValidator(as_list)] | None = None
    """Where these alerts go, by the names of the sinks; default to every one, none for an empty list."""
    continue_: bool = Field(default=False, alias="continue")
    """Whether the routes after it are tried, too."""

    def route(self) -> Route:
        """Return the route."""
        return Route(self.groups, frozenset(self.severity), self.team, self.sinks, self.continue_)


def make_routes(settings: Sequence[RouteSettings]) -> Routes:
    """Return the routes of these settings."""
    return Routes([one.route() for one in settings])


def is_complete(settings: Sequence[RouteSettings]) -> bool:
    """Tell whether every alert matches a route: one that none matches goes to every sink."""
    return any(one.groups is None and not one.severity for one in settings)


def check_names(wanted: Collection[str], known: Collection[str], kind: str) -> None:
    """Raise ValueError, with a line that names the first, unless all `wanted` names are known ones of this kind."""
    for name in wanted:
        if name not in known:
            close = closest_name(name, known)
            meant = f"; did you mean {close}?" if close else f": there is {', '.join(known) or 'none'}"
            raise ValueError(f'"{name}" is not the name of a {kind}{meant}')

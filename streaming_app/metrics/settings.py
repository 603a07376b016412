"""The section `metrics` of the configuration: its keys and their valid values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from streaming_app.section import Address, RegexText, Section

MAX_GROUPS = 1_000
MAX_LAG_SERIES = 10_000

LagSubject = Literal["group", "topic", "subtopology", "process", "task", "partition"]


class MetricsSettings(Section):
    """The section `metrics`."""

    listen: Address | None = None
    """The address of `/metrics`, `/health` and `/ready`: `HOST:PORT`; None: not served."""
    groups: RegexText = ".*"
    """Groups that have series of their own: a regular expression that must match the whole id."""
    max_groups: Annotated[int, Field(ge=0)] = MAX_GROUPS
    """Maximum number of groups with series of their own: groups that are not Stable first, then by id."""
    lag_by: tuple[LagSubject, ...] = ("group", "topic", "subtopology", "process")
    """What has series of its lag."""
    max_lag_series: Annotated[int, Field(ge=0)] = MAX_LAG_SERIES
    """Maximum number of series of each kind of lag: the largest first."""
    compatibility: Literal["kafka-lag-exporter"] | None = None
    """Whose names the lag has in addition."""

"""The section `metrics` of the configuration: its keys and their valid values."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from streaming_app.alerts.durations import RegexText

MAX_GROUPS = 1_000
MAX_LAG_SERIES = 10_000
_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\s\]]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>\d{1,5})")
_MAX_PORT = 65_535


def _check_address(text: str) -> str:
    split_address(text)
    return text


def split_address(text: str) -> tuple[str, int]:
    """Split `HOST:PORT` or `[::]:PORT` into host and port. Raises ValueError for any other text."""
    matched = _ADDRESS.fullmatch(text)
    if not matched or int(matched["port"]) > _MAX_PORT:
        raise ValueError(f'must be HOST:PORT, such as 127.0.0.1:9464 or [::]:9464, not "{text}"')
    return matched["ipv6"] or matched["host"], int(matched["port"])


LagSubject = Literal["group", "topic", "subtopology", "process", "task", "partition"]


class MetricsSettings(BaseModel):
    """The section `metrics`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    listen: Annotated[str, AfterValidator(_check_address)] | None = None
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

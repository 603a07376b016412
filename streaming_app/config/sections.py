"""The sections of the configuration that are short: their keys, and their valid values.

`alerts` and `sinks` are made of the rules and of the sinks. deploy/streams-groups.example.yaml says more of each key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from streaming_app.groups.budget import DEFAULT
from streaming_app.regex import Regex
from streaming_app.section import Address, Days, Duration, Pattern, PositiveDuration, Section

MAX_GROUPS = 1_000

LagSubject = Literal["group", "topic", "partition"]
_SUBJECTS = get_args(LagSubject)
_Offsets = Annotated[int, Field(ge=0)]
_Count = Annotated[int, Field(ge=1)]
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


def check_base_path(text: str) -> str:
    """Return the path without a slash at the end. Raises ValueError if it is no path."""
    path = text if text.startswith("/") or not text else f"/{text}"
    if not _BASE_PATH.fullmatch(path):
        raise ValueError(f'must be a path of letters, digits and -._~, such as /streams, not "{text}"')
    return path.rstrip("/")


class SwitchSettings(Section):
    """A section of something that the running job does; most of it never with `--once`."""

    enabled: bool = True


class OffsetsSettings(SwitchSettings):
    """The section `offsets`: the query that reads committed offsets, and groups of every type."""

    trigger: Duration = 10.0
    """Minimum time between its batches."""


class LagSettings(SwitchSettings):
    """The section `lag`: the brokers are asked for the ends of the logs, and the lag is written."""

    interval: PositiveDuration = 30.0
    """Time between two passes."""
    history_days: Days = 7.0
    """How many days `lag_history` is kept."""
    allowed: _Offsets = 0
    """A lag of at most so many offsets is OK."""
    allowed_by_group: Mapping[Pattern, _Offsets] = {}
    """The same for groups whose whole id matches a regular expression; the first one that matches counts."""

    def allowed_for(self, group_id: str) -> int:
        """Return the lag that is allowed for a group, in offsets."""
        matching = (value for regex, value in self.allowed_by_group.items() if regex.matches(group_id))
        return next(matching, self.allowed)


class SelfCheckSettings(SwitchSettings):
    """The section `self_check`: the running job compares its tables with the brokers."""

    interval: PositiveDuration = 3600.0
    """Time between two comparisons of all groups; one also follows each start, once the job has caught up."""


class GroupBudgetSettings(Section):
    """The section `group_budget`: how much of one group is kept, whatever its tenant writes, see `groups.budget`."""

    members: _Count = DEFAULT.members
    tasks: _Count = DEFAULT.tasks
    bytes: _Count = DEFAULT.bytes


def _finest(given: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Return of a list, as 0.2.0 had, the finest subject."""
    if not isinstance(given, list | tuple):
        return given
    return max((one for one in given if one in _SUBJECTS), key=_SUBJECTS.index, default="topic")


class MetricsSettings(Section):
    """The section `metrics`."""

    listen: Address | None = None
    """The address of `/metrics`, `/health` and `/ready`: `HOST:PORT`; None: not served."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which they are reached, in addition to `localhost`, IP addresses and the host's own name."""
    groups: Pattern = Regex(".*")
    """Groups that have series of their own: a regular expression that must match the whole id."""
    max_groups: Annotated[int, Field(ge=0)] = MAX_GROUPS
    """Maximum number of groups with series of their own: those known the longest, and a tenth for new ones."""
    lag_by: Annotated[LagSubject, BeforeValidator(_finest)] = "topic"
    """What has series of its lag."""


class PageSettings(Section):
    """The section `page`."""

    base_path: Annotated[str, AfterValidator(check_base_path)] = ""
    """The path of the page, for a proxy that passes paths on as they are."""
    allowed_hosts: tuple[str, ...] = ()
    """Names under which the page is reached, in addition to `localhost`, IP addresses and the host's own name."""
    auth_file: Path | None = None
    """Who may read it: lines `USER:PASSWORD` or `Bearer TOKEN`; None: everybody who reaches the address."""

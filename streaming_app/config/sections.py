"""The short sections of the configuration: their keys and valid values.

`config.alerts` has the section `alerts`, and `notify` the sinks. deploy/streams-groups.example.yaml explains each key.
"""

from typing import Annotated, Literal

from pydantic import Field

from streaming_app.groups.budget import DEFAULT
from streaming_app.regex import Regex
from streaming_app.section import Address, Days, Duration, Pattern, PositiveDuration, Section

MAX_GROUPS = 1_000

_Count = Annotated[int, Field(ge=1)]


class SwitchSettings(Section):
    """A section for a part of the job that can be switched off. Most of these parts do not run with `--once`."""

    enabled: bool = True


class OffsetsSettings(SwitchSettings):
    """The section `offsets`: the stream that reads committed offsets, and groups of every type."""

    trigger: Duration = 10.0
    """Minimum time between batches of this stream."""


class LagSettings(SwitchSettings):
    """The section `lag`: the job asks the brokers for the ends of the logs, and writes the lag."""

    interval: PositiveDuration = 30.0
    history_days: Days = 7.0
    """How many days `lag_history` is kept."""


class GroupBudgetSettings(Section):
    """The section `group_budget`: limits for one group, see `groups.budget`."""

    members: _Count = DEFAULT.members
    tasks: _Count = DEFAULT.tasks
    bytes: _Count = DEFAULT.bytes


class MetricsSettings(Section):
    """The section `metrics`."""

    listen: Address | None = None
    """The address of `/metrics`, `/health` and `/ready`: `HOST:PORT`. None: they are not served."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may have, in addition to `localhost`, IP addresses and the machine's own name."""
    groups: Pattern = Regex(".*")
    """Groups with series of their own: a regular expression for the whole id."""
    max_groups: Annotated[int, Field(ge=0)] = MAX_GROUPS
    """Maximum number of groups with series of their own: the oldest ones."""
    lag_by: Literal["group", "topic", "partition"] = "topic"
    """Which subjects have series of their lag: each group, each topic of a group, or each partition."""


class PageSettings(Section):
    """The section `page`."""

    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may have, in addition to `localhost`, IP addresses and the machine's own name."""

"""The section `lag` of the configuration: its keys and their valid values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from streaming_app.section import Days, PositiveDuration, RegexText, Section

_Offsets = Annotated[int, Field(ge=0)]


class LagSettings(Section):
    """The section `lag`."""

    enabled: bool = True
    """Whether the job asks the brokers for the ends of the logs, and writes the lag."""
    interval: PositiveDuration = 30.0
    """Time between two passes."""
    history_interval: PositiveDuration = 60.0
    """Minimum time between two rows of `lag_history` for a partition."""
    history_days: Days = 7.0
    """How many days `lag_history` is kept."""
    allowed: _Offsets = 0
    """A lag of at most so many offsets is OK."""
    allowed_by_group: Mapping[RegexText, _Offsets] = {}
    """The same for groups whose whole id matches a regular expression; the first one that matches counts."""

    def allowed_for(self, group_id: str) -> int:
        """Return the lag that is allowed for a group, in offsets."""
        matching = (value for regex, value in self.allowed_by_group.items() if re.fullmatch(regex, group_id, re.DOTALL))
        return next(matching, self.allowed)

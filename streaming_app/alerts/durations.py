"""How durations and patterns are written in the configuration, as types for pydantic's models."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SPELLED = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS))  # as Prometheus: each unit once, largest first
_LONGEST = 3650 * 86_400.0


def seconds(given: Any) -> float:  # noqa: ANN401 - whatever YAML holds
    """A duration in seconds. Raises ValueError, which says what was given, for what is none."""
    value = math.nan
    if isinstance(given, int | float) and not isinstance(given, bool):
        value = float(given)
    elif isinstance(given, str):
        value = _parsed(given.strip())
    if math.isnan(value):
        raise ValueError(f'must be seconds, or a duration such as 90s, 5m or 1h30m, not "{given}"')
    if value < 0:
        raise ValueError(f'must not be negative, not "{given}"')
    if value > _LONGEST:
        raise ValueError(f'must be at most 3650d, not "{given}"')
    return value


def _parsed(text: str) -> float:
    spelled = _SPELLED.fullmatch(text.removeprefix("-"))
    if text and spelled and any(spelled.groups()):
        value = sum(int(n) * unit for n, unit in zip(spelled.groups(), _UNITS.values(), strict=True) if n)
        return -value if text.startswith("-") else value
    try:
        return float(text)
    except ValueError:
        return math.nan


def spelled(value: float) -> str:
    """The shortest text for a number of seconds: `1h30m`; `0s`."""
    parts, left = [], round(value * 1000)
    for unit, size in [*_UNITS.items()][1:]:  # nobody says a week and a day
        number, left = divmod(left, round(size * 1000))
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def _positive(value: float) -> float:
    if not value:
        raise ValueError("must be more than 0")
    return value


def _pattern(given: Any) -> re.Pattern[str]:  # noqa: ANN401 - whatever YAML holds
    if isinstance(given, re.Pattern):
        return given
    if not isinstance(given, str):
        raise ValueError(f'must be a regular expression, in quotes, not "{given}"')  # noqa: TRY004 - pydantic's way
    try:
        return re.compile(given)
    except re.error as error:
        where = "" if error.pos is None else f" at position {error.pos + 1}"
        raise ValueError(f'is no regular expression: {error.msg}{where} of "{given}"') from None


Duration = Annotated[float, BeforeValidator(seconds)]
"""Seconds, or text such as `90s`, `5m`, `1h30m`."""

PositiveDuration = Annotated[float, BeforeValidator(seconds), AfterValidator(_positive)]

Regex = Annotated[re.Pattern[str], BeforeValidator(_pattern)]
"""A regular expression of Python's; what uses it lets it match the whole of a text, as Prometheus does."""

"""The types of the configuration for durations and regular expressions, for pydantic's models."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

_UNITS = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile("".join(rf"(?:(\d+){unit})?" for unit in _UNITS))  # as Prometheus: each unit once, largest first
_LONGEST = 3650 * 86_400.0


def parse_duration(given: Any, longest: float = _LONGEST) -> float:  # noqa: ANN401 - any YAML value
    """Return a duration of at most `longest` seconds. Raises ValueError, with the given value, for anything else."""
    value = math.nan
    if isinstance(given, int | float) and not isinstance(given, bool):
        value = float(given)
    elif isinstance(given, str):
        value = _parse(given.strip())
    if math.isnan(value):
        raise ValueError(f'must be seconds, or a duration such as 90s, 5m or 1h30m, not "{given}"')
    if value < 0:
        raise ValueError(f'must not be negative, not "{given}"')
    if value > longest:
        raise ValueError(f'must be at most {format_duration(longest)}, not "{given}"')
    return value


def _parse(text: str) -> float:
    match = _DURATION.fullmatch(text.removeprefix("-"))
    if text and match and any(match.groups()):
        value = sum(int(n) * unit for n, unit in zip(match.groups(), _UNITS.values(), strict=True) if n)
        return -value if text.startswith("-") else value
    try:
        return float(text)
    except ValueError:
        return math.nan


def format_duration(value: float) -> str:
    """Return the shortest text for a number of seconds: `1h30m`; `0s`."""
    parts, left = [], round(value * 1000)
    for unit, size in [*_UNITS.items()][1:]:  # 8d, not 1w1d
        number, left = divmod(left, round(size * 1000))
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def _positive(value: float) -> float:
    if not value:
        raise ValueError("must be more than 0")
    return value


def _compile(given: Any) -> re.Pattern[str]:  # noqa: ANN401 - any YAML value
    if isinstance(given, re.Pattern):
        return given
    if not isinstance(given, str):
        raise ValueError(f'must be a regular expression, in quotes, not "{given}"')  # noqa: TRY004 - pydantic's way
    try:
        return re.compile(given)
    except re.error as error:
        raise ValueError(f'is not a valid regular expression: {error} of "{given}"') from None


def _check_regex(text: str) -> str:
    _compile(text)
    return text


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds, or text such as `90s`, `5m`, `1h30m`."""

PositiveDuration = Annotated[float, BeforeValidator(parse_duration), AfterValidator(_positive)]

Regex = Annotated[re.Pattern[str], BeforeValidator(_compile)]
"""A Python regular expression; its users match the whole text with it, as Prometheus does."""

RegexText = Annotated[str, AfterValidator(_check_regex)]
"""The same, kept as its text: for settings that are shown or passed on as they were given."""

"""What the sections of the configuration are made of: their base class, and the types of their values.

A value that several sections have, such as a duration or an address, has its type here. The sections themselves are in
`config`, and those of the sinks with their sinks.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, PlainValidator

from streaming_app.regex import Regex, given_regex
from streaming_app.text import DAY, LONGEST_RETENTION, parse_duration, parse_size, split_address


class Section(BaseModel):
    """A section: its values do not change, a key that it does not have is an error, and no error shows a secret.

    Durations are seconds, or text such as `90s`, `5m`, `1h30m` or `PT5M`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _positive(value: float) -> float:
    if not value:
        raise ValueError("must be more than 0")
    return value


def _parse_days(given: Any) -> float:  # noqa: ANN401 - any YAML value
    return parse_duration(given, LONGEST_RETENTION, unit=DAY) / DAY


def _compile(given: Any) -> Regex:  # noqa: ANN401 - any YAML value
    if isinstance(given, Regex):
        return given
    if not isinstance(given, str):
        raise ValueError(f'must be a regular expression, in quotes, not "{given}"')  # noqa: TRY004 - pydantic's way
    return given_regex(given)


def _check_regex(text: str) -> str:
    _compile(text)
    return text


def _check_address(text: str) -> str:
    split_address(text)
    return text


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""In seconds; given as a number of them, or as text such as `90s`, `5m`, `1h30m` or `PT5M`."""

PositiveDuration = Annotated[Duration, AfterValidator(_positive)]

Size = Annotated[int, BeforeValidator(lambda given: parse_size(str(given)))]
"""In bytes; given as a number of them, or as text such as `64m` or `2g`."""

Days = Annotated[float, BeforeValidator(_parse_days), AfterValidator(_positive)]
"""In days; given as a number of them, or as text such as `12h`, `30d` or `P30D`."""

Pattern = Annotated[Regex, PlainValidator(_compile), PlainSerializer(lambda regex: regex.pattern, return_type=str)]
"""A regular expression of RE2's syntax that a whole text matches, as Prometheus does."""

PatternText = Annotated[str, AfterValidator(_check_regex)]
"""The same, kept as its text: for settings that are shown or passed on as they were given."""

Address = Annotated[str, AfterValidator(_check_address)]
"""Where to listen: `HOST:PORT` or `[::]:PORT`."""

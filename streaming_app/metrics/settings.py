"""The settings of the metrics, as the configuration file spells them. Only what may be set, and what it may be."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_GROUPS = 1_000
_ADDRESS = re.compile(r"(?:\[(?P<six>[^\s\]]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>\d{1,5})")
_MOST_PORT = 65_535


def _address(text: str) -> str:
    split_address(text)
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f'must be a regular expression, and "{text}" is not: {error}') from None
    return text


def split_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `[::]:PORT` in its parts. Raises ValueError for anything else."""
    matched = _ADDRESS.fullmatch(text)
    if not matched or int(matched["port"]) > _MOST_PORT:
        raise ValueError(f'must be HOST:PORT, such as 127.0.0.1:9464 or [::]:9464, not "{text}"')
    return matched["six"] or matched["host"], int(matched["port"])


class MetricsSettings(BaseModel):
    """The section `metrics`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    listen: Annotated[str, AfterValidator(_address)] | None = None
    """Where `/metrics`, `/health` and `/ready` answer: `HOST:PORT`; nowhere if not set."""
    groups: Annotated[str, AfterValidator(_regex)] = ".*"
    """Groups that have series of their own: a regular expression that the whole id must match."""
    max_groups: Annotated[int, Field(ge=0)] = MAX_GROUPS
    """How many groups have series of their own at most: those that are not Stable first, then by name."""

"""The section `labels` of the configuration: what the groups of a pattern are called by, such as `team: payments`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from streaming_app.section import Pattern, Section

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OURS = frozenset({"alertname", "cause", "cluster", "group", "group_id", "rule", "severity", "verdict"})
_CACHED_GROUPS = 1 << 16

LabelsOf = Callable[[str], Mapping[str, str]]
"""Returns the labels of a group."""


class LabelsSettings(Section):
    """An entry of `labels`: labels of the groups whose whole id matches."""

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[str, Annotated[str, Field(min_length=1, max_length=200)]] = Field(init=False)
    groups: Pattern

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of this entry."""
        return self.__pydantic_extra__

    @model_validator(mode="after")
    def _are_labels(self) -> Self:
        if not self.labels:
            raise ValueError("has no label: add one, such as team: payments")
        for name in self.labels:
            if not _NAME.fullmatch(name) or name in _OURS:
                ours = ", which streams-groups sets itself" if name in _OURS else ": use letters, digits and _"
                raise ValueError(f'"{name}" cannot be the name of a label{ours}')
        return self


def make_labels(entries: Sequence[LabelsSettings]) -> LabelsOf:
    """Return the function that returns the labels of a group: of every entry that matches; the last one wins."""

    @lru_cache(_CACHED_GROUPS)
    def labels_of(group_id: str) -> Mapping[str, str]:
        matching = (one.labels for one in entries if one.groups.matches(group_id))
        return {name: value for labels in matching for name, value in labels.items()}

    return labels_of

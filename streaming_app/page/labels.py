"""The labels of groups, such as `team: payments`, as the configuration gives them by regular expressions. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

Label = tuple[str, str]
"""Name and value."""


class Labels:
    """Which labels a group has."""

    def __init__(self, rules: Mapping[str, Mapping[str, str]]) -> None:
        """Take the section `page.labels`: the regular expression by value by name."""
        self._rules = {
            name: [(value, re.compile(regex, re.DOTALL)) for value, regex in values.items()]
            for name, values in rules.items()
        }

    def of(self, group_id: str) -> tuple[Label, ...]:
        """Return the labels of a group: of each name the first value whose expression matches the whole id."""
        found = []
        for name, values in self._rules.items():
            value = next((value for value, regex in values if regex.fullmatch(group_id)), None)
            if value is not None:
                found.append((name, value))
        return tuple(found)


def label_text(label: Label) -> str:
    """Return a label as it is written in a URL and shown."""
    name, value = label
    return f"{name}:{value}"


NO_LABELS = Labels({})

"""The errors of an invalid configuration."""

from __future__ import annotations

from collections.abc import Iterable

from streaming_app.errors import UserError


class ConfigError(UserError):
    """An invalid file or variable; each of `lines` names one key and what its value must be."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class FlagError(ConfigError):
    """An invalid value of a flag, which is wrong usage of the command."""

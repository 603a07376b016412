"""Why the configuration cannot be used."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigError(Exception):
    """Something that a file or variable says is wrong; each of `lines` names one key and what it must be."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class FlagError(ConfigError):
    """The same for what stands on the command line, which is wrong usage."""

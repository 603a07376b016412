"""The variables STREAMS_GROUPS_*: what they say, and which look like slips. Loads pydantic only where it must."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from typing import Any

from streaming_app.config.errors import ConfigError

PREFIX = "STREAMS_GROUPS_"
NESTED = "__"
FILE = PREFIX + "CONFIG"

# Read by others: the cache of jars, the tests' kind of broker.
_ELSEWHERE = {"CONFIG", "CACHE", "BROKER", "IVY_SETTINGS"}
# What Kubernetes tells every pod of a Service named streams-groups or streams-groups-metrics.
_SERVICE_LINK = re.compile(r"(^|_)(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP).*)?)$")


def variables() -> Iterator[str]:
    """The names of variables that are meant for the configuration, not empty, without the prefix and in capitals."""
    for variable, value in os.environ.items():
        name = variable.upper().removeprefix(PREFIX)
        if value and name != variable.upper() and name not in _ELSEWHERE and not _SERVICE_LINK.search(name):
            yield name


def said(only: Collection[str]) -> dict[str, Any]:
    """What the variables of the keys `only` say, nested as in the file. Raises ConfigError for what is not JSON."""
    wanted = {name.lower() for name in variables() if _key(name) in only}
    if not wanted:
        return {}
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError  # noqa: PLC0415 - 0.1 s that few need

    from streaming_app.config.paths import with_numbers, written  # noqa: PLC0415
    from streaming_app.config.settings import Settings  # noqa: PLC0415

    class FromEnvironment(Settings, BaseSettings):  # type: ignore[misc] # two kinds of model_config
        """The keys, in the form that pydantic-settings asks for."""

    class Source(EnvSettingsSource):
        """Knows which value it tried last to read as JSON."""

        tried: Any = None

        def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:  # noqa: ANN401 - as it is there
            self.tried = value
            return super().decode_complex_value(field_name, field, value)

    source = Source(FromEnvironment, env_prefix=PREFIX, env_nested_delimiter=NESTED, case_sensitive=False)
    source.env_vars = {
        name: value for name, value in source.env_vars.items() if name.removeprefix(PREFIX.lower()) in wanted
    }
    try:
        return with_numbers(Settings, source())
    except SettingsError:
        name = next(name for name, value in source.env_vars.items() if value == source.tried).upper()
        key = written(tuple(name.removeprefix(PREFIX).lower().split(NESTED)))
        raise ConfigError([f'{name}: {key}: must be JSON, such as ["a", "b"] or {{"a": 1}}']) from None


def slips(known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Variables that say nothing but were probably meant to: `known` keys, `__` between the parts of nested ones."""
    from streaming_app.config.paths import nearest  # noqa: PLC0415 - loads pydantic

    plain = {_plain(name): name for name in known}
    for name in variables():
        if _key(name) not in known and (meant := nearest(_plain(name), plain)):
            yield PREFIX + name, PREFIX + plain[meant].upper()


def variable_of(path: tuple[str | int, ...]) -> str:
    """The variable that set the value at a path: its own, or that of a mapping or list around it."""
    set_here = set(variables())
    for end in range(len(path), 0, -1):
        name = NESTED.join(map(str, path[:end])).upper()
        if name in set_here:
            return PREFIX + name
    return PREFIX + str(path[0]).upper()


def _key(name: str) -> str:
    return name.split(NESTED, maxsplit=1)[0].lower()


def _plain(name: str) -> str:
    return name.lower().replace(NESTED, "_")

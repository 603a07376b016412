"""The variables STREAMS_GROUPS_*: their values, and which look like typos. Loads pydantic only when it is needed."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

from streaming_app.errors import ConfigError

PREFIX = "STREAMS_GROUPS_"
NESTED = "__"
FILE = PREFIX + "CONFIG"

# Not keys of the configuration: read by --config, for the jars, by the image, and by the tests.
_OTHER_VARIABLES = {"CONFIG", "CACHE", "BROKER", "JARS", "MAVEN", "CHECK"}
# Set by Kubernetes in every pod when a Service is named streams-groups or streams-groups-metrics.
_SERVICE_LINK = re.compile(r"(^|_)(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP).*)?)$")


def variable_names() -> Iterator[str]:
    """Yield the names of the variables that set the configuration, not empty: without the prefix, in capitals."""
    for variable, value in os.environ.items():
        name = variable.upper().removeprefix(PREFIX)
        if value and name != variable.upper() and name not in _OTHER_VARIABLES and not _SERVICE_LINK.search(name):
            yield name


def read_environment(only: Collection[str]) -> dict[str, Any]:
    """Return the values that variables set for the keys `only`, nested as in the file.

    Raises ConfigError for a list or mapping that is not JSON.
    """
    wanted = {name.lower() for name in variable_names() if _key(name) in only}
    if not wanted:
        return {}
    from pydantic_settings import SettingsError  # noqa: PLC0415 - takes 0.1 s

    from streaming_app.config.key_path import format_path, parse_integers  # noqa: PLC0415
    from streaming_app.config.settings import Settings  # noqa: PLC0415

    settings_class, source_class = _pydantic_classes()
    source = source_class(settings_class, env_prefix=PREFIX, env_nested_delimiter=NESTED, case_sensitive=False)
    source.env_vars = {
        name: value for name, value in source.env_vars.items() if name.removeprefix(PREFIX.lower()) in wanted
    }
    try:
        return parse_integers(Settings, _with_names_of_rules(source()))
    except SettingsError:
        name = next(name for name, value in source.env_vars.items() if value == source.last_parsed).upper()
        key = format_path(tuple(name.removeprefix(PREFIX).lower().split(NESTED)))
        raise ConfigError([f'{name}: {key}: must be JSON, such as ["a", "b"] or {{"a": 1}}']) from None


def _with_names_of_rules(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the names of rules as the catalogue has them: those of variables are in one case."""
    alerts = values.get("alerts")
    if not isinstance(alerts, dict) or not isinstance(given := alerts.get("rules"), dict):
        return values
    from streaming_app.alerts.catalog import rules  # noqa: PLC0415 - few set a rule by a variable

    names = {name.lower(): name for name in rules()}
    return values | {"alerts": alerts | {"rules": {names.get(name, name): one for name, one in given.items()}}}


@cache
def _pydantic_classes() -> tuple[Any, Any]:
    """Return the keys as the class that pydantic-settings requires, and the source: to make them takes milliseconds."""
    from pydantic_settings import BaseSettings, EnvSettingsSource  # noqa: PLC0415

    from streaming_app.config.settings import Settings  # noqa: PLC0415

    class EnvironmentSettings(Settings, BaseSettings):  # type: ignore[misc] # two kinds of model_config
        """The keys."""

    class RecordingSource(EnvSettingsSource):
        """Remembers the value that it last tried to parse as JSON."""

        last_parsed: Any = None

        def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:  # noqa: ANN401 - pydantic's signature
            self.last_parsed = value
            return super().decode_complex_value(field_name, field, value)

    return EnvironmentSettings, RecordingSource


def typo_suggestions(known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that sets nothing but resembles one of the `known` keys, with the variable of that key.

    Nested keys have `__` between their parts.
    """
    from streaming_app.config.key_path import closest_name  # noqa: PLC0415 - loads pydantic

    normalized = {_normalize(name): name for name in known}
    for name in variable_names():
        if _key(name) not in known and (closest := closest_name(_normalize(name), normalized)):
            yield PREFIX + name, PREFIX + normalized[closest].upper()


def variable_of(path: tuple[str | int, ...]) -> str:
    """Return the variable that set the value at a path: its own, or that of a mapping or list which contains it."""
    names = set(variable_names())
    for end in range(len(path), 0, -1):
        name = NESTED.join(map(str, path[:end])).upper()
        if name in names:
            return PREFIX + name
    return PREFIX + str(path[0]).upper()


def _key(name: str) -> str:
    return name.split(NESTED, maxsplit=1)[0].lower()


def _normalize(name: str) -> str:
    return name.lower().replace(NESTED, "_")

"""Reads the environment variables STREAMS_GROUPS_*. Loads pydantic only when it is needed."""

import os
import re
from collections.abc import Iterator
from typing import Any

PREFIX = "STREAMS_GROUPS_"
NESTED = "__"
FILE = PREFIX + "CONFIG"

# Variables that are not keys of the configuration: --config, the jars, the image and the tests use them.
_OTHER_VARIABLES = {"CONFIG", "CACHE", "BROKER", "JARS", "MAVEN", "CHECK"}
# Kubernetes sets these in every pod if a Service is named streams-groups or streams-groups-metrics.
_SERVICE_LINK = re.compile(r"(^|_)(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP).*)?)$")


def variable_names() -> Iterator[str]:
    """Yield the names of the variables that set the configuration, in capitals and without the prefix."""
    for variable, value in os.environ.items():
        name = variable.upper().removeprefix(PREFIX)
        if value and name != variable.upper() and name not in _OTHER_VARIABLES and not _SERVICE_LINK.search(name):
            yield name


def variable_of(path: tuple[str | int, ...]) -> str:
    """Return the variable that sets the value at a path, or a mapping or list that contains this value."""
    names = [NESTED.join(map(str, path[:end])).upper() for end in range(len(path), 0, -1)]
    return PREFIX + next((name for name in names if name in set(variable_names())), names[-1])


def read_environment() -> dict[str, Any]:
    """Return the values that variables set, nested as in the file. Invalid JSON stays text, for a later error."""
    if not any(variable_names()):
        return {}
    from pydantic_settings import EnvSettingsSource  # noqa: PLC0415 - takes 0.1 s

    from streaming_app.config.settings import Settings  # noqa: PLC0415 - as above

    class Variables(EnvSettingsSource):
        def decode_complex_value(self, field_name: str, field: Any, value: Any) -> Any:  # noqa: ANN401 - pydantic's signature
            try:
                return super().decode_complex_value(field_name, field, value)
            except ValueError:
                return value  # the validation reports it in one line

    source = Variables(
        Settings,  # type: ignore[arg-type] # only its fields are used
        case_sensitive=False,
        env_prefix=PREFIX,
        env_nested_delimiter=NESTED,
        env_ignore_empty=True,
    )
    return source()

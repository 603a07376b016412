"""Prints the effective configuration as a configuration file, with redacted secrets."""

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import SecretStr

from streaming_app.config.file import REDACTED, REFERENCE
from streaming_app.config.load import KeyPath, LoadedConfig, format_path
from streaming_app.text import escape

# The same as Spark's spark.redaction.regex.
_SECRET_SETTING = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)


def effective_values(loaded: LoadedConfig) -> dict[str, Any]:
    """Return every key with its value as a JSON value. Secrets are redacted; references are as in the file."""
    values: dict[str, Any] = _shown(loaded.settings.model_dump(by_alias=True), loaded.secrets)
    for key, value in values["conf"].items():
        if _SECRET_SETTING.search(key) and not REFERENCE.fullmatch(value):
            values["conf"][key] = REDACTED
    return values


def as_yaml(loaded: LoadedConfig) -> str:
    """Return YAML. Comments at its top name the keys that each source sets; all other keys have defaults."""
    head, known = [f"# file: {loaded.file}"] if loaded.file else [], set[KeyPath]()
    for source, values in loaded.sources.items():
        if new := values.keys() - known:
            head.append(f"# set by {source}: {escape(', '.join(sorted(map(format_path, new))))}")
        known.update(new)
    text: str = yaml.safe_dump(effective_values(loaded), sort_keys=False, allow_unicode=True, width=math.inf)
    return "\n".join([*head, text])


def _shown(value: Any, secrets: Mapping[str, str]) -> Any:  # noqa: ANN401 - any value of a key
    if isinstance(value, Mapping):
        return {key: _shown(inner, secrets) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_shown(one, secrets) for one in value]
    if isinstance(value, SecretStr):
        reference = secrets.get(value.get_secret_value(), "")
        return reference if REFERENCE.fullmatch(reference) else REDACTED
    if value is None or isinstance(value, bool | int | float):
        return value
    return secrets.get(str(value), str(value))

"""Client properties files as Kafka's clients read them, config providers included; what they mean is security.py's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import javaproperties

Properties = Mapping[str, str]

_PROVIDERS = "config.providers"
_VARIABLE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")  # Kafka's own: ${provider:path:key}, the path optional


class SecurityError(Exception):
    """The properties cannot be followed. Its text is one line that names the property, never a secret."""


def read_properties(file: Path) -> dict[str, str]:
    """The properties in a file, as they stand there. Raises SecurityError if it cannot be read."""
    try:
        with file.open(encoding="utf-8") as opened:
            return dict(javaproperties.load(opened))
    except (OSError, ValueError) as error:
        raise SecurityError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def resolved(properties: Properties) -> Properties:
    """The properties with `${provider:path:key}` replaced, as Kafka's own client does where `config.providers` is set.

    Raises SecurityError for a provider that only Java has, and for a key that is not there.
    """
    names = [name.strip() for name in properties.get(_PROVIDERS, "").split(",") if name.strip()]
    known = {name: _provider(name, properties.get(f"{_PROVIDERS}.{name}.class", "")) for name in names}
    if not known:
        return properties

    def value(name: str, text: str) -> str:
        def replaced(found: re.Match[str]) -> str:
            provider, path, key = found[1], found[2] or "", found[3]
            if provider not in known:
                return found[0]  # Kafka leaves it as it is, too
            told = known[provider](path, key)
            if told is None:
                raise SecurityError(f"{name}: {found[0]} is not there")
            return told

        return _VARIABLE.sub(replaced, text)

    return {name: text if name.startswith(_PROVIDERS) else value(name, text) for name, text in properties.items()}


def _provider(name: str, java_class: str) -> Callable[[str, str], str | None]:
    kind = java_class.rpartition(".")[2]
    if kind not in _KINDS:
        raise SecurityError(
            f"{_PROVIDERS}.{name}.class {java_class or 'is missing'}: only {', '.join(_KINDS)} can be followed here"
        )
    return _KINDS[kind]


def _from_environment(_path: str, key: str) -> str | None:
    return os.environ.get(key)


def _from_file(path: str, key: str) -> str | None:
    return read_properties(Path(path)).get(key)


def _from_directory(path: str, key: str) -> str | None:
    try:
        return Path(path, key).read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SecurityError(f"{path}/{key}: {getattr(error, 'strerror', None) or error}") from None


_KINDS: Mapping[str, Callable[[str, str], str | None]] = {
    "EnvVarConfigProvider": _from_environment,
    "FileConfigProvider": _from_file,
    "DirectoryConfigProvider": _from_directory,
}

"""Client properties as Kafka's clients read them: files, config providers, and `sasl.jaas.config`.

`security.py` interprets the values.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import javaproperties

from streaming_app.errors import ConfigError, UserError, reason_of

Properties = Mapping[str, str]

_PROVIDERS = "config.providers"
_VARIABLE = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")  # Kafka's syntax: ${provider:path:key}, path optional
_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+)|([;=]))""", re.DOTALL)
# Properties that a file for other tools may contain. Spark's Kafka source sets all but the last itself, and rejects
# them as options. The job sets the last one: with `read_committed` an open transaction of one group would stop all
# reading.
_SET_BY_US = frozenset(
    {"auto.offset.reset", "enable.auto.commit", "group.id", "interceptor.classes", "key.deserializer"}
    | {"value.deserializer", "isolation.level"}
)


class SecurityError(UserError):
    """The properties are invalid or not supported. The text is one line that names the property, never a secret."""


def read_properties(file: Path) -> dict[str, str]:
    """Return the properties in a file, with config providers not yet resolved. Raises SecurityError if unreadable."""
    try:
        with file.open(encoding="utf-8") as stream:
            return dict(javaproperties.load(stream))
    except (OSError, ValueError) as error:
        raise SecurityError(f"{file}: {reason_of(error)}") from None


def client_properties(bootstrap_server: str, command_config: Path | None) -> dict[str, str]:
    """Return Kafka client properties for the command line's options. Raises ConfigError if the file cannot be read."""
    try:
        properties = read_properties(command_config) if command_config else {}
    except SecurityError as error:
        raise ConfigError([f"--command-config {error}"]) from None
    allowed = {name: value for name, value in properties.items() if name not in _SET_BY_US}
    return {**allowed, "bootstrap.servers": bootstrap_server}


def resolve_config_providers(properties: Properties) -> Properties:
    """Return the properties with `${provider:path:key}` replaced, as Kafka's clients do. Raises SecurityError."""
    names = [name.strip() for name in properties.get(_PROVIDERS, "").split(",") if name.strip()]
    providers = {name: _find_provider(name, properties.get(f"{_PROVIDERS}.{name}.class", "")) for name in names}
    if not providers:
        return properties

    def resolve(name: str, text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            provider, path, key = match[1], match[2] or "", match[3]
            if provider not in providers:
                return match[0]  # Kafka also leaves it unchanged
            value = providers[provider](path, key)
            if value is None:
                raise SecurityError(f"{name}: {match[0]} does not exist")
            return value

        return _VARIABLE.sub(replace, text)

    return {name: text if name.startswith(_PROVIDERS) else resolve(name, text) for name, text in properties.items()}


def _find_provider(name: str, java_class: str) -> Callable[[str, str], str | None]:
    class_name = java_class.rpartition(".")[2]
    if class_name not in _PROVIDER_CLASSES:
        raise SecurityError(
            f"{_PROVIDERS}.{name}.class {java_class or 'is missing'}: only {', '.join(_PROVIDER_CLASSES)} are supported"
        )
    return _PROVIDER_CLASSES[class_name]


def _read_file_in_directory(path: str, key: str) -> str | None:
    try:
        return Path(path, key).read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise SecurityError(f"{path}/{key}: {reason_of(error)}") from None


_PROVIDER_CLASSES: Mapping[str, Callable[[str, str], str | None]] = {
    "EnvVarConfigProvider": lambda _, name: os.environ.get(name),
    "FileConfigProvider": lambda path, key: read_properties(Path(path)).get(key),
    "DirectoryConfigProvider": _read_file_in_directory,
}


def jaas_options(properties: Properties, module: str, *required: str) -> dict[str, str]:
    """Return the options of `sasl.jaas.config`, with the `required` ones. SecurityError never quotes a value."""
    config = properties.get("sasl.jaas.config")
    if config is None:
        raise SecurityError("sasl.jaas.config is missing (a JAAS file named by a Java system property is not read)")
    tokens = _tokenize(config)
    if len(tokens) < 2 or tokens[0] != module:  # noqa: PLR2004 - the module and its control flag
        raise SecurityError(f"sasl.jaas.config must start with {module} required")
    if tokens[-1] != ";":
        raise SecurityError("sasl.jaas.config must end with a semicolon")
    rest = tokens[2:-1]
    if len(rest) % 3 or any(equals != "=" for equals in rest[1::3]):
        raise SecurityError('sasl.jaas.config must be MODULE required NAME="VALUE" ...;')
    options = dict(zip(rest[::3], rest[2::3], strict=True))
    if missing := [name for name in required if name not in options]:
        raise SecurityError(f"sasl.jaas.config has no {' and no '.join(missing)}")
    return options


def _tokenize(config: str) -> list[str]:
    tokens, position, config = [], 0, config.strip()
    while position < len(config):
        match = _TOKEN.match(config, position)
        if match is None:
            raise SecurityError(f"sasl.jaas.config cannot be parsed at character {position + 1}")
        quoted = match[1] if match[1] is not None else match[2]
        tokens.append((match[3] or match[4]) if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        position = match.end()
    return tokens

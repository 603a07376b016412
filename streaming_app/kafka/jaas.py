"""The property `sasl.jaas.config`, parsed as Java's own parser does."""

from __future__ import annotations

import re

from streaming_app.kafka.properties import SecurityError

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+)|([;=]))""", re.DOTALL)


def jaas_options(config: str | None, module: str) -> dict[str, str]:
    """Return the options of `MODULE required NAME="VALUE" ...;`. Raises SecurityError, which never quotes the value."""
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
    return dict(zip(rest[::3], rest[2::3], strict=True))


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

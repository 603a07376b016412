"""The line `sasl.jaas.config`, read as Java's own parser does."""

from __future__ import annotations

import re

from streaming_app.protocol.properties import SecurityError

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+)|([;=]))""", re.DOTALL)


def jaas_options(config: str | None, module: str) -> dict[str, str]:
    """The options of a line `MODULE required NAME="VALUE" ...;`. Raises SecurityError, which never quotes the line."""
    if config is None:
        raise SecurityError("sasl.jaas.config is missing (a JAAS file named by a Java system property is not read)")
    tokens = _tokens(config)
    if len(tokens) < 2 or tokens[0] != module:  # noqa: PLR2004 - the module and its control flag
        raise SecurityError(f"sasl.jaas.config must begin with {module} required")
    if tokens[-1] != ";":
        raise SecurityError("sasl.jaas.config must end with a semicolon")
    rest = tokens[2:-1]
    if len(rest) % 3 or any(equals != "=" for equals in rest[1::3]):
        raise SecurityError('sasl.jaas.config must be MODULE required NAME="VALUE" ...;')
    return dict(zip(rest[::3], rest[2::3], strict=True))


def _tokens(config: str) -> list[str]:
    tokens, position, config = [], 0, config.strip()
    while position < len(config):
        found = _TOKEN.match(config, position)
        if found is None:
            raise SecurityError(f"sasl.jaas.config cannot be read from character {position + 1} on")
        quoted = found[1] if found[1] is not None else found[2]
        tokens.append((found[3] or found[4]) if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        position = found.end()
    return tokens

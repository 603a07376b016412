"""Text that others chose, such as a group id, where control characters would be obeyed: terminals, logs, JSON.

A character is escaped unless it is shown as itself: control characters (C0 and C1, so that no terminal obeys them),
marks that change the direction of text, characters of no width or without a glyph (two ids would look the same), line
separators, unpaired surrogates. Letters of every script, accents and symbols stay.
"""

from __future__ import annotations

import re

# Invisible, but printable for `str.isprintable`: fillers, variation selectors and a blank. The other characters with
# the property Default_Ignorable_Code_Point of Unicode 16 (DerivedCoreProperties.txt) are of category Cf or Cn.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_NOT_ASCII_TEXT = re.compile(r"[^\n -~]")


def is_visible(text: str) -> bool:
    """Return whether every character is shown as itself."""
    return text.isprintable() and (text.isascii() or _INVISIBLE.search(text) is None)


def escape(text: str) -> str:
    r"""Return the text on one line, with escapes as in Python for what is not shown as itself: `\x1b`, `\u202e`."""
    return text if is_visible(text) else "".join(map(_escape_character, text))


def escape_lines(text: str) -> str:
    """Return the lines of a text, each escaped. All but the first are indented, so that none looks like another's."""
    return "\n    ".join(map(escape, text.split("\n")))


def escape_json(text: str) -> str:
    r"""Return the same JSON with `\uXXXX` for what is not shown as itself in its strings. Keeps the line feeds."""
    return _NOT_ASCII_TEXT.sub(_escape_json_character, text)


def _escape_character(character: str) -> str:
    return character if is_visible(character) else character.encode("unicode_escape").decode("ascii")


def _escape_json_character(match: re.Match[str]) -> str:
    if is_visible(match[0]):
        return match[0]
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))

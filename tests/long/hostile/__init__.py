"""Text that moves a cursor, changes a title, reverses or hides characters, or forges a line where it is printed."""

import unicodedata

HOSTILE = (
    "g\x1b[2J\x1b]0;title\x07\x9b31m\x9d0;title\x9c\x90q\x9c\x85"  # escape sequences of C0 and C1
    "\u202eexe.txt\u202c\u2066\u2069\u200e\u200f\u061c"  # directions
    "\u200b\u200d\ufeff\u2060\u00ad\u034f\u3164\ufe0f\U000e0041"  # invisible
    "\x00\b\r\n\t\v\f\x1c\x7f\u2028\u2029\ud800 end"
)
"""All of it at once, with an unpaired surrogate."""
STORED = HOSTILE.replace("\ud800", "")
"""The same without the surrogate, which no UTF-8 holds."""

_NAMED = {"\u034f", "\u3164", "\ufe0f"}  # of categories that most letters have, too


def effective_characters(text: str) -> set[str]:
    """Return the characters of a text, other than line feeds, that are not shown as themselves."""
    return {one for one in text if (unicodedata.category(one)[0] in "CZ" and one not in " \n") or one in _NAMED}

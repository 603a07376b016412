"""Regular expressions (RE2) for text that tenants of the cluster choose, such as group ids and names of topics.

RE2 takes time linear in the text, whatever the expression and the text are; Python's `re` may take for ever. RE2 has no
look-around and no back-references. Here `.` matches every character, since an id may hold any.
"""

import re

import re2

_GLOB = re.compile(r"[A-Za-z0-9_-]\*$")
_OPTIONS = re2.Options()
_OPTIONS.dot_nl = True
_OPTIONS.log_errors = False


class Regex:
    """An expression of RE2's syntax that the whole text has to match, as in Prometheus."""

    def __init__(self, pattern: str) -> None:
        """Compile it. Raises ValueError, whose text says why it is none."""
        self.pattern = pattern
        try:
            self._compiled = re2.compile(pattern, _OPTIONS)
        except re2.error as error:
            (said,) = error.args or ("",)  # RE2 says it in bytes
            reason = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
            raise ValueError(f"is not a valid regular expression: {reason}") from None
        except UnicodeEncodeError:
            raise ValueError("is not a valid regular expression: it has a lone surrogate") from None

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        return self._compiled.fullmatch(text.encode("utf-8", "replace")) is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Regex) and self.pattern == other.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"Regex({self.pattern!r})"


def given_regex(text: str) -> Regex:
    """Return an expression that a person wrote. Raises ValueError, also for one of a shell such as `payments-*`.

    As an expression that one matches no id that begins with `payments-`.
    """
    if _GLOB.search(text):
        raise ValueError(f"is a regular expression, in which {text[-2:]} repeats {text[-2]!r}: write {text[:-1]}.*")
    return Regex(text)

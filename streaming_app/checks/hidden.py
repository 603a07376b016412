"""What a lag pass could not learn because the principal lacks a right, and the command that grants it. Pure."""

from collections.abc import Collection, Iterator, Mapping
from shlex import quote
from typing import NamedTuple

from streaming_app.kafka.error_lines import grant_command
from streaming_app.kafka.topic_reader import is_denied
from streaming_app.text import count, escape, first_of

_NAMED = 3
_GROUP = "group "
_SAID = {
    ("Describe", "group"): "verify does not compare them, and their commits are read from the log alone",
    ("Describe", "topic"): "the lag of their readers is unknown, and these are neither Idle nor Ok",
    ("Read", "topic"): "whether records or only markers of transactions wait at their ends is unknown",
}


class Hidden(NamedTuple):
    """Groups or topics for which the principal lacks a right."""

    right: str
    """`Describe` or `Read`."""
    kind: str
    """`group` or `topic`."""
    names: Collection[str]

    @property
    def line(self) -> str:
        """How many, which, what is unknown because of it, and the command that grants the right."""
        names = sorted(self.names)
        verb = {"Describe": "described", "Read": "read"}[self.right]
        few = [quote(one) for one in names] if len(names) <= _NAMED else ["'*'"]
        which = first_of([escape(one) for one in names[:_NAMED]], _NAMED, len(names))
        return (
            f"{count(len(names), self.kind)} may not be {verb} ({which}): {_SAID[self.right, self.kind]}; "
            f"{grant_command(self.right, [(self.kind, one) for one in few])}"
        )


def hidden_parts(errors: Mapping[str, Collection[str]]) -> Iterator[Hidden]:
    """Yield what is hidden, from the errors of a lag pass (`PassResult.errors`): error -> topics, or `group NAME`."""
    found: dict[tuple[str, str], set[str]] = {}
    for error, subjects in errors.items():
        right = "Describe" if error.isupper() else "Read"  # the name of Kafka's error alone, or in a text about reading
        for one in subjects if is_denied(error) else ():
            kind = "group" if one.startswith(_GROUP) and right == "Describe" else "topic"
            found.setdefault((right, kind), set()).add(one.removeprefix(_GROUP) if kind == "group" else one)
    for (right, kind), names in sorted(found.items()):
        yield Hidden(right, kind, names)

"""The generated parts of `deploy/RUNBOOK.md` and `docs/alerts.md`.

These parts are between markers. They come from the rules' own entries and from the tables in `groups/state_rules.py`.
The text outside the markers is written by hand, in these files.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from streaming_app.alerts.catalog import Rule, rules
from streaming_app.alerts.group_conditions import CONDITIONS
from streaming_app.groups.state_rules import DESCRIPTION_STATUS_RULES as STATUS_RULES
from streaming_app.groups.state_rules import NONE, SOLICITABLE_STATUSES, STATE_RULES, UNCERTAIN, is_unsolicited
from streaming_app.text import format_duration

PAGE = Path(__file__).parents[2] / "deploy" / "RUNBOOK.md"
ALERTS_PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"
OUTPUTS = Path(__file__).parents[2] / "deploy" / "outputs"
"""The output of each rule's command on a real broker: `tests/long/runbook` writes it."""

_JOB, _DESCRIPTION = "StreamsGroups", "Description"


# For each row of STATE_RULES, in the same order: the condition, and its meaning for the application.
_STATES = (
    ("the group was deleted, or a classic group has taken over its id", "nothing runs"),
    ("the log has no group epoch yet", "wait for the next record of the group"),
    ("the group has no members", "nothing runs"),
    ("the log has no topology yet", "nothing is processed"),
    (
        "a 4.1 broker wrote the group's record, which does not contain the validated topology",
        "ask the broker (`verify`)",
    ),
    ("the topology epoch is not the one whose topics were validated", "nothing is processed"),
    ("the group epoch is above the assignment epoch", "a new assignment is being computed; tasks run where they were"),
    (
        "some member is not STABLE, or not at the assignment epoch",
        "tasks are moving; these are not processed meanwhile",
    ),
    ("none of the above", "all tasks are where they should be"),
)

# The same for STATUS_RULES: the condition of each.
_STATUSES = (
    "the log has no topology yet",
    "stored = the topology's epoch",
    "failed = the topology's epoch: the plugin rejected it permanently",
    f"stored = {UNCERTAIN}: the broker was about to call its plugin, and has not recorded the result",
    f"stored = {NONE}: none was ever stored, or it was deleted",
    "stored = another epoch",
)

_EPOCH = 3
# (stored, failed) before -> stored after, with members or without; and what happened.
_PUSHES = (
    ((NONE, NONE), UNCERTAIN, True, "the first push starts"),
    ((UNCERTAIN, NONE), _EPOCH, True, "a push succeeds"),
    ((_EPOCH - 1, NONE), UNCERTAIN, True, "a push for a new topology starts"),
    ((_EPOCH, NONE), UNCERTAIN, True, "a push starts although the description is stored"),
    ((UNCERTAIN, _EPOCH), _EPOCH, True, "a push succeeds although an earlier one was rejected permanently"),
    ((UNCERTAIN, _EPOCH), UNCERTAIN, True, "the same record again: a push is rejected permanently once more"),
    ((_EPOCH, NONE), UNCERTAIN, False, "a deletion or a cleanup starts"),
)


def pages() -> dict[str, str]:
    """Return the text of each page with generated parts, by its path in the project."""
    return {f"{page.parent.name}/{page.name}": render_page(page.read_text("utf-8")) for page in (PAGE, ALERTS_PAGE)}


def render_page(text: str) -> str:
    """Return the page with its generated parts replaced. Raises ValueError for a marker with an unknown name."""

    def replace_part(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in _PARTS:
            raise ValueError(f"the runbook has a marker for {name}; the known parts are {', '.join(_PARTS)}")
        return f"{match['start']}\n\n{_PARTS[name]().strip()}\n\n<!-- end of {name} -->"

    return re.sub(
        r"(?P<start><!-- (?P<name>[\w-]+), written by `python -m [\w.]+` -->).*?<!-- end of (?P=name) -->",
        replace_part,
        text,
        flags=re.DOTALL,
    )


def _index() -> str:
    rows = ((f"[{rule.name}](#{rule.name.lower()})", rule.severity, _fires_after(rule)) for rule in rules().values())
    return _table(("alert", "severity", "fires after"), rows)


def _summaries() -> str:
    rows = (
        (f"[{rule.name}](../deploy/RUNBOOK.md#{rule.name.lower()})", rule.summary, _fires_after(rule))
        for rule in rules().values()
    )
    return _table(("rule", "what is wrong", "opens after"), rows)


def _about(*, job: bool, descriptions: bool = False) -> str:
    chosen = (
        rule
        for rule in rules().values()
        if rule.name.startswith(_JOB) == job and (_DESCRIPTION in rule.name) == descriptions
    )
    return "\n\n".join(map(section, chosen))


def _fires_after(rule: Rule) -> str:
    return format_duration(rule.for_seconds) if rule.for_seconds else "at once"


def section(rule: Rule) -> str:
    """Return the runbook's section about a rule."""
    head = f"{rule.summary} **{rule.severity.capitalize()}**, `for: {format_duration(rule.for_seconds)}`."
    parts = [
        f"### {rule.name}",
        _wrap(head),
        _wrap(f"**For the business:** {rule.impact}"),
        _wrap(f"**When:** {rule.meaning}"),
        f"**Confirm:** `{rule.confirm}` prints, for example:",
        f"```text\n{_output(rule.name)}\n```",
        "**What to do:**",
        _list(one.text for one in rule.steps),
        *(("**What not to do:**", _list(rule.avoid)) if rule.avoid else ()),
        *(f"{question}\n\n```sql\n{sql}\n```" for question, sql in rule.queries.items()),
    ]
    return "\n\n".join(parts)


def _output(name: str) -> str:
    file = OUTPUTS / f"{name}.txt"
    return file.read_text("utf-8").rstrip() if file.exists() else ""


def _list(items: Iterable[str]) -> str:
    return "\n".join(_wrap(f"- {item}", "  ") for item in items)


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _states() -> str:
    rows = (
        (str(number), state, when, meaning)
        for number, ((state, _), (when, meaning)) in enumerate(zip(STATE_RULES, _STATES, strict=True), start=1)
    )
    return _table(("", "state", "when", "what it means"), rows)


def _statuses() -> str:
    rows = (
        (status, when, "yes" if status in SOLICITABLE_STATUSES else "no", ", ".join(_alerts_about(status)))
        for (status, _), when in zip(STATUS_RULES, _STATUSES, strict=True)
    )
    return _table(("status", "when", "asked for", "alerts"), rows)


def _alerts_about(status: str) -> Iterable[str]:
    found = (name for name, one in CONDITIONS.items() if one.statuses and status in one.statuses)
    return (f"[{name}](#{name.lower()})" for name in found)


def _pushes() -> str:
    rows = []
    for (stored, failed), after, has_members, event in _PUSHES:
        unsolicited = has_members and is_unsolicited(_EPOCH, (stored, failed), after, is_same=stored == after)
        before = f"{stored}, {failed}"
        rows.append((before, str(after), "yes" if has_members else "no", event, "**yes**" if unsolicited else "no"))
    return _table(("stored, failed before", "stored after", "members", "what happens", "unsolicited"), rows)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


_PARTS: Mapping[str, Callable[[], str]] = {
    "index": _index,
    "rules": _summaries,
    "alerts-groups": lambda: _about(job=False),
    "alerts-descriptions": lambda: _about(job=False, descriptions=True),
    "alerts-job": lambda: _about(job=True),
    "states": _states,
    "statuses": _statuses,
    "pushes": _pushes,
}

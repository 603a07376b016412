"""Writes the parts of `deploy/RUNBOOK.md` that come from the code: `python -m streaming_app.alerts.runbook`.

Those stand between markers and are made from the rules' own entries and from the tables in `core/states.py`; what is
outside the markers is written by hand, in that file. A test compares the file with what is made.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from streaming_app.alerts.durations import spelled
from streaming_app.core.description_rules import DESCRIPTION_RULES
from streaming_app.core.facts import GroupFacts, JobFacts
from streaming_app.core.group_rules import GROUP_RULES
from streaming_app.core.job_rules import JOB_RULES
from streaming_app.core.rule import Rule
from streaming_app.core.states import DESCRIPTION_RULES as STATUS_RULES
from streaming_app.core.states import NONE, STATE_RULES, UNCERTAIN, WOULD_BE_ASKED_FOR, is_unsolicited

PAGE = Path(__file__).parents[2] / "deploy" / "RUNBOOK.md"

_AnyRule = Rule[GroupFacts] | Rule[JobFacts]

# What each row of STATE_RULES says, in the same order: when, and what it means for the application.
_STATES = (
    ("it was deleted, or a classic group has taken over its id", "nothing runs"),
    ("it has no members", "nothing runs"),
    ("the log has not told its group epoch yet", "wait for the next record of it"),
    ("the log has not told its topology yet", "nothing is processed"),
    ("a 4.1 broker wrote its record, which does not say whether the topics are in order", "ask the broker (`verify`)"),
    ("its topology's epoch is not the one whose topics were found in order", "nothing is processed"),
    ("its group epoch is above its assignment epoch", "a new assignment is being made; tasks run where they were"),
    ("some member is not STABLE, or not at the assignment epoch", "tasks are moving; those that move stand still"),
    ("none of the above", "all tasks are where they should be"),
)

# The same for STATUS_RULES.
_STATUSES = (
    "the log has not told the topology yet",
    "stored = the topology's epoch",
    "failed = the topology's epoch: the plugin rejected it for good",
    f"stored = {UNCERTAIN}: the broker was about to call its plugin, and has not noted the end",
    f"stored = {NONE}: none was ever stored, or it was deleted",
    "stored = another epoch",
)

_EPOCH = 3
# (stored, failed) before -> stored after, with members or without; and what has happened.
_STEPS = (
    ((NONE, NONE), UNCERTAIN, True, "the first push begins"),
    ((UNCERTAIN, NONE), _EPOCH, True, "a push ends well"),
    ((_EPOCH - 1, NONE), UNCERTAIN, True, "a push for a new topology begins"),
    ((_EPOCH, NONE), UNCERTAIN, True, "a push begins though the description is stored"),
    ((UNCERTAIN, _EPOCH), _EPOCH, True, "a push ends well though it had failed for good"),
    ((_EPOCH, NONE), UNCERTAIN, False, "a deletion or a clean-up begins"),
)


def page(text: str) -> str:
    """The page with its generated parts made anew. Raises ValueError for a marker that names no part."""

    def made(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in _PARTS:
            raise ValueError(f"the runbook has a marker for {name}, and there are {', '.join(_PARTS)}")
        return f"{match['begin']}\n\n{_PARTS[name]().strip()}\n\n<!-- end of {name} -->"

    return re.sub(
        r"(?P<begin><!-- (?P<name>[\w-]+), written by `python -m [\w.]+` -->).*?<!-- end of (?P=name) -->",
        made,
        text,
        flags=re.DOTALL,
    )


def _index() -> str:
    rows = ((f"[{rule.name}](#{rule.name.lower()})", rule.severity, _grace(rule)) for rule in _all_rules())
    return _table(("alert", "severity", "fires after"), rows)


def _all_rules() -> tuple[_AnyRule, ...]:
    return (*GROUP_RULES, *DESCRIPTION_RULES, *JOB_RULES)


def _grace(rule: _AnyRule) -> str:
    if rule.grace is None:
        window = rule.thresholds["window"].default
        return f"at once; ends {spelled(window)} after the last time" if len(rule.thresholds) == 1 else "at once"
    return spelled(rule.grace) if rule.grace else "at once"


def _sections(rules: Sequence[_AnyRule]) -> str:
    return "\n\n".join(_section(rule) for rule in rules)


def _section(rule: _AnyRule) -> str:
    settings = [] if rule.grace is None else [f"`for: {spelled(rule.grace)}`"]
    for name, (default, about, seconds) in rule.thresholds.items():
        settings.append(f"`{name}: {spelled(default) if seconds else default}` ({about})")
    queries = [f"{question}\n\n```sql\n{sql}\n```" for question, sql in rule.look_at.items()]
    steps = "\n".join(_filled(f"- {step}", "  ") for step in rule.to_do)
    told = f"**{rule.severity}**, {', '.join(settings)}"
    return "\n\n".join((f"### {rule.name}", told, _filled(rule.meaning), *queries, "What to do:", steps))


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _states() -> str:
    rows = (
        (str(number), state, when, meaning)
        for number, ((state, _), (when, meaning)) in enumerate(zip(STATE_RULES, _STATES, strict=True), start=1)
    )
    return _table(("", "state", "when", "what it means"), rows)


def _statuses() -> str:
    rows = (
        (status, when, "yes" if status in WOULD_BE_ASKED_FOR else "no", ", ".join(_alerts_about(status)))
        for (status, _), when in zip(STATUS_RULES, _STATUSES, strict=True)
    )
    return _table(("status", "when", "asked for", "alerts"), rows)


def _alerts_about(status: str) -> Iterable[str]:
    return (f"[{r.name}](#{r.name.lower()})" for r in DESCRIPTION_RULES if r.statuses and status in r.statuses)


def _pushes() -> str:
    rows = []
    for (stored, failed), after, has_members, words in _STEPS:
        unasked = is_unsolicited(_EPOCH, (stored, failed), after, has_members=has_members)
        before = f"{stored}, {failed}"
        rows.append((before, str(after), "yes" if has_members else "no", words, "**yes**" if unasked else "no"))
    return _table(("stored, failed before", "stored after", "members", "what happens", "unsolicited"), rows)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


_PARTS: Mapping[str, Callable[[], str]] = {
    "index": _index,
    "alerts-groups": lambda: _sections(GROUP_RULES),
    "alerts-descriptions": lambda: _sections(DESCRIPTION_RULES),
    "alerts-job": lambda: _sections(JOB_RULES),
    "states": _states,
    "statuses": _statuses,
    "pushes": _pushes,
}


def main() -> None:
    """Write the page, in a checkout of the source."""
    if not PAGE.exists():
        sys.exit(f"{PAGE} is not there: run this in a checkout of the source")
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

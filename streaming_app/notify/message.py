"""The text of notifications about one problem or several, and the format of evidence in all sinks.

Clients choose the ids of groups and clients: any characters, up to 32 kB. Summaries and evidence contain these ids.
Notifications show them as plain text: without control characters, and without mentions, links and markup for chats.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime

from streaming_app.alerts.catalog import GROUP_ID, rules
from streaming_app.alerts.problem import (
    BY_EVIDENCE,
    FIRING,
    HEALTH,
    IGNORED,
    NOT_ENABLED,
    RESOLVED,
    Problem,
    severity_rank,
)
from streaming_app.health.verdict import ENDS
from streaming_app.notify.old_problems import OLD_PROBLEMS
from streaming_app.text import and_more, count, digest, escape, lasted, shorten, utc, utc_iso

_MAX_ID, _MAX_SUMMARY, _MAX_VALUE = 200, 500, 10_000  # characters
_MAX_NAME = 100  # characters of an id in a list

# A mention of everybody at any place, and of a user or group at the beginning of a word.
_MENTION = re.compile(r"@(?=all|channel|here|everyone)|(?<![A-Za-z0-9])@(?=[\w!&])", re.IGNORECASE)
_MARKUP = re.compile(r"(\](?=\()|<(?=[!@#&]|https?:))")  # [text](link), and Slack's and Discord's markup in < >
_NO_WIDTH = "\u200b"

Links = Mapping[str, str | None]
"""`runbook_url` and `page_url` of a problem."""


def format_title(problems: Sequence[Problem], event: str) -> str:
    """Return the title of a notification about problems with the same rule, in one line.

    For example `[FIRING] StreamsGroupDown: payments (cluster default)`, or with `300 groups` instead of the id.
    """
    first, groups = problems[0], {one.group_id for one in problems} - {None}
    about = shorten(one_line(first.group_id or ""), _MAX_ID)
    if len(problems) > 1:
        about = count(len(groups), "group") if groups else count(len(problems), "alert")
    cluster = f"cluster {first.cluster}"
    return f"[{event.upper()}] {first.rule}: {f'{about} ({cluster})' if about else cluster}"


def format_summary(problem: Problem, event: str) -> str:
    """Return one line: the group, what is wrong, and since when; or that it is over, and how long it lasted."""
    if event == RESOLVED and problem.ended_at:
        subject = "" if problem.group_id is None else f"{shorten(one_line(problem.group_id), _MAX_NAME)}: "
        by = "" if problem.ended_by in {None, BY_EVIDENCE} else f" ({problem.ended_by})"
        after = lasted(problem.ended_at - (problem.opened_at or problem.ended_at))
        return f"{subject}{problem.rule} is over since {utc(problem.ended_at)}, after {after}{by}"
    return with_since(shorten(one_line(problem.summary), _MAX_SUMMARY), problem)


def with_since(summary: str, problem: Problem) -> str:
    """Return the summary, with the time since when the condition holds if it does not have it."""
    return summary if " since " in summary else f"{summary} (since {utc(problem.since)})"


def format_next(problem: Problem, event: str) -> str:
    """Return one line: the next step for the reader, or for an ended problem, why it ended."""
    if event == RESOLVED:
        return f"{shorten(one_line(_why_over(problem)), _MAX_SUMMARY)} Nothing is to be done."
    if problem.subject == HEALTH and problem.group_id is not None:
        return f"Next: {_command('streams-groups why --group GROUP_ID', problem)}"
    if problem.rule == OLD_PROBLEMS:
        end = "streams-groups alerts end --match PATTERN --reason retired"
        return (
            f"Next: {_command('streams-groups alerts', problem)}; for those that nobody needs: {_command(end, problem)}"
        )
    rule = rules().get(problem.rule)
    shows_it = rule.confirm if rule and (problem.group_id or GROUP_ID not in rule.confirm) else "streams-groups alerts"
    return f"Next: {_command(shows_it, problem)}, and the runbook of {problem.rule}"


def _command(command: str, problem: Problem) -> str:
    group = shlex.quote(shorten(one_line(problem.group_id or ""), _MAX_NAME))
    return f"{command.replace(GROUP_ID, group)} --cluster {problem.cluster}"


def _why_over(problem: Problem) -> str:
    """Return why a problem ended, in a sentence."""
    by_settings = {IGNORED: "The configuration ignores the group.", NOT_ENABLED: "The configuration disables the rule."}
    if problem.ended_by and problem.ended_by != BY_EVIDENCE:
        return by_settings.get(problem.ended_by, f"A person ended it: {problem.ended_by}.")
    last = problem.timeline[-1] if problem.timeline else None
    return last.why if last and last.verdict in ENDS else "Its condition does not hold any more."


def format_message(problem: Problem, event: str, links: Links) -> str:
    """Return the whole message about a problem in a few lines, the most important first."""
    ended_at = problem.ended_at if event == RESOLVED else None
    fields: list[tuple[str, object]] = [
        ("severity", problem.severity),
        ("since", problem.since),
        ("fired", problem.opened_at),
        ("resolved", ended_at),
        ("ended by", problem.ended_by if ended_at and problem.ended_by != BY_EVIDENCE else None),
        *problem.labels.items(),
        ("cause", problem.cause and shorten(problem.cause, _MAX_ID)),
        *problem.evidence.items(),
        ("runbook", links["runbook_url"]),
        ("page", links["page_url"]),
    ]
    lines = (
        f"{shorten(one_line(name), _MAX_ID)}: {shorten(one_line(format_value(value)), _MAX_VALUE)}"
        for name, value in fields
        if value is not None
    )
    return "\n".join([format_summary(problem, event), format_next(problem, event), "", *lines])


def format_list(problems: Sequence[Problem], event: str, named: int, links: Sequence[Links]) -> str:
    """Return the message about several problems: a line for each of the first `named`, what to do, and common facts."""
    pages = (f" {page}" if (page := one["page_url"]) else "" for one in links)
    lines = [f"- {format_summary(one, event)}{page}" for one, page in zip(problems[:named], pages, strict=False)]
    more = [and_more(left).strip()] if (left := len(problems) - named) > 0 else []
    runbook, step = links[0]["runbook_url"], f"Next: streams-groups alerts --cluster {problems[0].cluster}"
    shared = [f"severity: {worst_severity(problems)}", f"since: {utc_iso(min(one.since for one in problems))}"]
    steps = [step] if event == FIRING else []
    return "\n".join([*lines, *more, *steps, "", *shared, *([f"runbook: {runbook}"] if runbook else [])])


def worst_severity(problems: Sequence[Problem]) -> str:
    """Return the highest severity."""
    return min((one.severity for one in problems), key=severity_rank)


def format_value(value: object) -> str:
    """Return a value of the evidence for people: a list with commas, text without quotes, anything else as JSON."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else utc_iso(value) if isinstance(value, datetime) else dump_json(value)


def dump_json(value: object) -> str:
    """Return JSON in ASCII, on one line."""
    return json.dumps(value, default=_to_jsonable, separators=(",", ":"))


def notification_id(problem: Problem, event: str, sink: str | None = None) -> str:
    """Return an id that is the same for every attempt. It is a hash, because headers cannot contain every group id.

    With a `sink`, each notification that a problem has become worse has another id.
    """
    repeat = next((d.repeat for d in problem.deliveries if (d.sink, d.event) == (sink, event)), 0)
    return digest(f"{problem.alert_id}/{event}/{repeat}", 32)


def one_line(text: str) -> str:
    """Return the text for a header or a log line: spaces for line breaks, and escapes for other control characters."""
    return escape(" ".join(text.split()))


def disarm(text: str) -> str:
    """Return the text without mentions and without links that show another text, for any chat.

    Some services show Markdown although apprise sends them plain text, and do not escape it.
    """
    return _MENTION.sub("@" + _NO_WIDTH, _MARKUP.sub(rf"\1{_NO_WIDTH}", text))


def _to_jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return utc_iso(value)
    return dict(value) if isinstance(value, Mapping) else str(value)

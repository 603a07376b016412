"""The text of notifications about one alert or several, and the format of evidence in all sinks.

Clients choose the ids of groups and clients: any characters, up to 32 kB. Summaries and evidence contain these ids.
Notifications show them as plain text: without control characters, and without mentions, links and markup for chats.

At the first start on a cluster, all that has been wrong for long opens at once. Nobody is to be woken by hundreds of
messages about groups that nobody has missed. So one alert, of the rule `OLD_ALERTS`, stands for all of them.
"""

import json
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from zlib import crc32

from streaming_app.alerts.alert import (
    BY_EVIDENCE,
    CRITICAL,
    FIRING,
    HEALTH,
    IGNORED,
    INFO,
    NOT_ENABLED,
    RESOLVED,
    WARNING,
    Alert,
    Delivery,
    Line,
    severity_rank,
)
from streaming_app.alerts.catalog import GROUP_ID, rules
from streaming_app.health.verdict import ENDS
from streaming_app.text import and_more, count, digest, escape, lasted, shorten, utc, utc_iso

_MAX_ID, _MAX_SUMMARY, _MAX_VALUE = 200, 500, 10_000  # characters
_MAX_NAME = 100  # characters of an id in a list
OLD_ALERTS = "StreamsGroupsOldAlerts"
_IN_SUMMARY, _IN_EVIDENCE = 5, 50  # old groups that are named; of each rule in the evidence
_ID_CHARACTERS = 12
_BY_SETTINGS = {IGNORED: "The configuration ignores the group.", NOT_ENABLED: "The configuration disables the rule."}

# A mention of everybody at any place, and of a user or group at the beginning of a word.
_MENTION = re.compile(r"@(?=all|channel|here|everyone)|(?<![A-Za-z0-9])@(?=[\w!&])", re.IGNORECASE)
_MARKUP = re.compile(r"(\](?=\()|<(?=[!@#&]|https?:))")  # [text](link), and Slack's and Discord's markup in < >
_NO_WIDTH = "\u200b"

Links = Mapping[str, str | None]
"""`runbook_url` and `page_url` of an alert."""


def format_title(alerts: Sequence[Alert], event: str) -> str:
    """Return the title of a notification about alerts with the same rule, in one line.

    For example `[FIRING] StreamsGroupDown: payments (cluster default)`, or with `300 groups` instead of the id.
    """
    first, groups = alerts[0], {one.group_id for one in alerts} - {None}
    about = shorten(one_line(first.group_id or ""), _MAX_ID)
    if len(alerts) > 1:
        about = count(len(groups), "group") if groups else count(len(alerts), "alert")
    cluster = f"cluster {first.cluster}"
    return f"[{event.upper()}] {first.rule}: {f'{about} ({cluster})' if about else cluster}"


def format_summary(alert: Alert, event: str) -> str:
    """Return one line: the group, what is wrong, and since when; or that it is over, and how long it lasted."""
    if event == RESOLVED and alert.ended_at:
        subject = "" if alert.group_id is None else f"{shorten(one_line(alert.group_id), _MAX_NAME)}: "
        by = "" if alert.ended_by in {None, BY_EVIDENCE} else f" ({alert.ended_by})"
        after = lasted(alert.ended_at - (alert.opened_at or alert.ended_at))
        return f"{subject}{alert.rule} is over since {utc(alert.ended_at)}, after {after}{by}"
    return with_since(shorten(one_line(alert.summary), _MAX_SUMMARY), alert)


def with_since(summary: str, alert: Alert) -> str:
    """Return the summary, with the time since when the condition holds if it does not have it."""
    return summary if " since " in summary else f"{summary} (since {utc(alert.since)})"


def format_next(alert: Alert, event: str) -> str:
    """Return one line: the next step for the reader, or for an ended alert, why it ended."""
    if event == RESOLVED:
        last = alert.timeline[-1] if alert.timeline else None
        why = last.why if last and last.verdict in ENDS else "Its condition does not hold any more."
        if alert.ended_by and alert.ended_by != BY_EVIDENCE:
            why = _BY_SETTINGS.get(alert.ended_by, f"A person ended it: {alert.ended_by}.")
        return f"{shorten(one_line(why), _MAX_SUMMARY)} Nothing is to be done."
    if alert.subject == HEALTH and alert.group_id is not None:
        return f"Next: {_command('streams-groups why --group GROUP_ID', alert)}"
    if alert.rule == OLD_ALERTS:
        end = "streams-groups alerts end --match PATTERN --reason retired"
        return f"Next: {_command('streams-groups alerts', alert)}; for those that nobody needs: {_command(end, alert)}"
    rule = rules().get(alert.rule)
    shows_it = rule.confirm if rule and (alert.group_id or GROUP_ID not in rule.confirm) else "streams-groups alerts"
    return f"Next: {_command(shows_it, alert)}, and the runbook of {alert.rule}"


def _command(command: str, alert: Alert) -> str:
    group = shlex.quote(shorten(one_line(alert.group_id or ""), _MAX_NAME))
    return f"{command.replace(GROUP_ID, group)} --cluster {alert.cluster}"


def format_message(alert: Alert, event: str, links: Links) -> str:
    """Return the whole message about an alert in a few lines, the most important first."""
    ended_at = alert.ended_at if event == RESOLVED else None
    fields: list[tuple[str, object]] = [
        ("severity", alert.severity),
        ("since", alert.since),
        ("fired", alert.opened_at),
        ("resolved", ended_at),
        ("ended by", alert.ended_by if ended_at and alert.ended_by != BY_EVIDENCE else None),
        *alert.labels.items(),
        ("cause", alert.cause and shorten(alert.cause, _MAX_ID)),
        *alert.evidence.items(),
        ("runbook", links["runbook_url"]),
        ("page", links["page_url"]),
    ]
    lines = (
        f"{shorten(one_line(name), _MAX_ID)}: {shorten(one_line(format_value(value)), _MAX_VALUE)}"
        for name, value in fields
        if value is not None
    )
    return "\n".join([format_summary(alert, event), format_next(alert, event), "", *lines])


def format_list(alerts: Sequence[Alert], event: str, named: int, links: Sequence[Links]) -> str:
    """Return the message about several alerts: a line for each of the first `named`, what to do, and common facts."""
    pages = (f" {page}" if (page := one["page_url"]) else "" for one in links)
    lines = [f"- {format_summary(one, event)}{page}" for one, page in zip(alerts[:named], pages, strict=False)]
    runbook, step = links[0]["runbook_url"], f"Next: streams-groups alerts --cluster {alerts[0].cluster}"
    shared = [f"severity: {worst_severity(alerts)}", f"since: {utc_iso(min(one.since for one in alerts))}"]
    steps = [step] if event == FIRING else []
    return "\n".join(
        [*lines, *_more(len(alerts) - named), *steps, "", *shared, *([f"runbook: {runbook}"] if runbook else [])]
    )


def _more(number: int) -> list[str]:
    return [and_more(number).strip()] if number > 0 else []


def as_one(alerts: Sequence[Alert], event: str, sink: str) -> Alert:
    """Return the alert that stands for these old ones. Its id is always the same in a cluster."""
    ordered = sorted(alerts, key=lambda one: one.urgency)
    ids = [shorten(one.group_id or "", _MAX_NAME) for one in ordered]
    by_rule, groups = defaultdict[str, list[str]](list), [*dict.fromkeys(ids)]
    for one, group_id in zip(ordered, ids, strict=True):
        by_rule[one.rule].append(group_id)
    counts = ", ".join(f"{number:,} {rule}" for rule, number in Counter(one.rule for one in ordered).items())
    named = ", ".join(groups[:_IN_SUMMARY]) + and_more(len(groups) - _IN_SUMMARY)
    have = "has had an alert" if len(groups) == 1 else "have had alerts"
    severity = worst_severity(alerts)
    at = max(one.opened_at or one.since for one in alerts)
    # Alertmanager has an alert for each severity: it falls when the worst alerts end
    is_over, now = event == RESOLVED, severity_rank(severity)
    earlier = [one for one in (CRITICAL, WARNING, INFO) if is_over or severity_rank(one) < now]
    delivery = Delivery(sink, event, repeat=crc32(" ".join(sorted(one.alert_id for one in alerts)).encode()))
    return Alert(
        digest(f"{alerts[0].cluster}/{OLD_ALERTS}", _ID_CHARACTERS),
        alerts[0].cluster,
        None,
        OLD_ALERTS,
        severity,
        min(one.since for one in alerts),
        min(one.opened_at or one.since for one in alerts),
        max(one.ended_at or at for one in alerts) if is_over else None,
        None,
        None,
        dict(set.intersection(*(set(one.labels.items()) for one in alerts))),
        f"{count(len(groups), 'group')} {have} since long before the job first started ({counts}): {named}",
        {rule: [*some[:_IN_EVIDENCE], *_more(len(some) - _IN_EVIDENCE)] for rule, some in by_rule.items()},
        tuple(Line(at, None, OLD_ALERTS, one, "") for one in earlier),
        (delivery,),
    )


def worst_severity(alerts: Sequence[Alert]) -> str:
    """Return the highest severity."""
    return min((one.severity for one in alerts), key=severity_rank)


def format_value(value: object) -> str:
    """Return a value of the evidence for people: a list with commas, text without quotes, anything else as JSON."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else utc_iso(value) if isinstance(value, datetime) else dump_json(value)


def dump_json(value: object) -> str:
    """Return JSON in ASCII, on one line."""
    return json.dumps(value, default=_to_jsonable, separators=(",", ":"))


def notification_id(alert: Alert, event: str, sink: str | None = None) -> str:
    """Return an id that is the same for every attempt. It is a hash, because headers cannot contain every group id.

    With a `sink`, each notification that an alert has become worse has another id.
    """
    repeat = next((d.repeat for d in alert.deliveries if (d.sink, d.event) == (sink, event)), 0)
    return digest(f"{alert.alert_id}/{event}/{repeat}", 32)


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

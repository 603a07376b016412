"""An incident as one HTML file that needs nothing else: what is wrong, what to do, time line, lag, what happened."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from streaming_app.alerts.health_rules import RULES_BY_VERDICT
from streaming_app.health.incidents import BY_EVIDENCE, CAUSES, Incident
from streaming_app.health.verdict import VERDICTS
from streaming_app.queries.lag_chart import HEIGHT, WIDTH, lag_chart
from streaming_app.queries.lag_series import lag_series
from streaming_app.queries.output import as_json
from streaming_app.tables.reader import WarehouseReader, of_group, time_literal
from streaming_app.text import count, escape, first_of, host_of, lasted, utc

_GROUPS = 20
_EVENTS = 60  # of one group
_CHART = (720, 120)
_AROUND = timedelta(minutes=15), timedelta(hours=1)  # as long as the incident, but at least and at most so long
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;"
    "color:#15191e;background:#fff}"
    "table{border-collapse:collapse}td,th{text-align:left;vertical-align:top;padding:.2em .8em .2em 0}"
    "td,p,li{overflow-wrap:anywhere}.t{white-space:nowrap}"
    "pre{white-space:pre-wrap;font-size:12px;margin:.2em 0}svg{background:#f4f4f4;max-width:100%}"
)


def report(reader: WarehouseReader, one: Incident, now: datetime) -> str:
    """Return the file. Raises WarehouseError."""
    end = one.ended_at or now
    title = f"{one.verdict}: {one.scope}"
    state = f"ended {utc(one.ended_at)}, {_ended(one)}" if one.ended_at else f"open at {utc(now)}"
    parts = (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=width=device-width>"
        f"<title>{_safe(f'Incident {one.incident_id}, {title}')}</title><style>{_STYLE}</style>",
        f"<h1>{_safe(title)}</h1><p><strong>{_safe(one.worst.why)}</strong></p>",
        f"<p>{_safe(VERDICTS.get(one.verdict, ''))} Incident {_safe(one.incident_id)}, {_safe(one.severity)}, from "
        f"{utc(one.opened_at)}, {state}, {lasted(end - one.opened_at)}. Cluster {_safe(one.cluster)}. "
        f"{_safe(CAUSES.get(one.cause, ''))} "
        f"{count(len(one.groups), 'group')}: {_safe(first_of(one.groups, _GROUPS))}.</p>",
        *_what_to_do(one),
        "<h2>Time line</h2>",
        _table(("at", "group", "verdict", "severity", "why"), _timeline(one)),
        *(part for name in one.groups[:_GROUPS] for part in _about_group(reader, one, name, end)),
        f"<p>Made at {utc(now)} from the tables of streams-groups; all times are UTC.</p></html>\n",
    )
    return "".join(parts)


def _what_to_do(one: Incident) -> Iterator[str]:
    rule = RULES_BY_VERDICT.get(one.verdict)
    if rule and not one.ended_at:
        steps = "".join(f"<li>{_safe(step)}" for step in rule.steps)
        yield f"<h2>What to do</h2><p>{_safe(rule.meaning)}</p><ol>{steps}</ol>"


def _timeline(one: Incident) -> Iterator[tuple[str, ...]]:
    for line in one.timeline:
        evidence = f"<pre>{html.escape(as_json(dict(line.evidence)))}</pre>" if line.evidence else ""
        texts = (_safe(text) for text in (line.group_id, line.verdict, line.severity or "", line.why))
        group_id, verdict, severity, why = texts
        yield _time(line.at), group_id, verdict, severity, why + evidence
    if one.ended_at:
        yield _time(one.ended_at), "", "ended", "", _safe(_ended(one))


def _ended(one: Incident) -> str:
    return (
        "offsets advanced, or nothing was left to do" if one.ended_by == BY_EVIDENCE else f"by a person: {one.ended_by}"
    )


def _about_group(reader: WarehouseReader, one: Incident, group_id: str, end: datetime) -> Iterator[str]:
    around = min(max(end - one.opened_at, _AROUND[0]), _AROUND[1])
    first, last = one.opened_at - around, end + around
    yield f"<h2>{_safe(group_id)}</h2><h3>Lag</h3>{_chart(reader, one, group_id, first, last, end)}"
    yield "<h3>What happened</h3>"
    events = reader.rows(
        "SELECT at, kind, member_id, client_host, old, new, cause FROM group_events e "  # noqa: S608 - quoted
        f"WHERE {of_group(one.cluster, group_id)} AND void IS NOT TRUE "
        f"AND kind <> 'assignment' AND at BETWEEN {time_literal(first)} AND {time_literal(last)} "
        f"ORDER BY at, e.offset LIMIT {_EVENTS + 1}"
    )
    if events:
        yield _table(("at", "event", "member", "old", "new", "cause"), map(_event, events[:_EVENTS]))
    else:
        yield f"<p>Nothing from {utc(first)} to {utc(last)}.</p>"
    if len(events) > _EVENTS:
        yield f"<p>The first {_EVENTS} of more: `streams-groups history --group` has all.</p>"


def _event(row: Mapping[str, Any]) -> tuple[str, ...]:
    member = " ".join(filter(None, (row["member_id"], host_of(row["client_host"]))))
    values = (row["kind"], member, row["old"], row["new"], row["cause"])
    return (_time(row["at"]), *(_safe(value or "") for value in values))


def _table(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th scope=col>{name}" for name in names)
    return f"<table><tr>{head}{''.join(f'<tr>{_cells(row)}' for row in rows)}</table>"


def _cells(row: Iterable[str]) -> str:
    return "".join(f"<td>{cell}" for cell in row)


def _time(at: datetime) -> str:
    return f"<span class=t>{utc(at)}</span>"


def _safe(text: str) -> str:
    return html.escape(escape(text))


def _chart(  # noqa: PLR0913, PLR0917 - what it is drawn from
    reader: WarehouseReader, one: Incident, group_id: str, first: datetime, last: datetime, end: datetime
) -> str:
    """Return the lag around the incident as a line in SVG; the time of the incident is shaded."""
    chart = lag_chart(lag_series(reader, one.cluster, group_id, first, last))
    if chart is None:
        return "<p>There is no history of its lag for this time.</p>"

    def x(at: datetime) -> float:
        return round((at.astimezone(timezone.utc) - first) / (last - first) * WIDTH, 1)

    begin, shown = x(one.opened_at), max(1.0, round(x(end) - x(one.opened_at), 1))
    shaded = f'<rect x="{begin}" y="0" width="{shown}" height="{HEIGHT}" fill="#fdd"/>'
    bands = "".join(f'<polygon points="{points}" fill="#9bd"/>' for points in chart.bands)
    stroke = 'fill="none" stroke="#036" stroke-width="1.5" vector-effect="non-scaling-stroke"'
    lines = "".join(f'<polyline points="{points}" {stroke}/>' for points in chart.lines)
    gaps = "".join(f'<rect x="{at}" y="0" width="{wide}" height="60" fill="#888"/>' for at, wide in chart.unknown)
    unknown = (
        " Below the bars the lag of some partitions was not known: the sum is a lower bound." if chart.unknown else ""
    )
    text = f"At most {chart.most:,} offsets, from {utc(first)} to {utc(last)}; the incident is shaded.{unknown}"
    width, height = _CHART
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" width="{width}" height="{height}" role="img" '
        f'aria-label="{text}">{shaded}{bands}{lines}{gaps}</svg><p>{text}</p>'
    )

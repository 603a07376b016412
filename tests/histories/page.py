"""Writes docs/alert-test-bed.md from the outcome of all histories: `python -m tests.histories.page`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median

from streaming_app.text import format_duration
from tests.histories.bed import Outcome, run
from tests.histories.history import DAY, History
from tests.histories.incidents import INCIDENTS
from tests.histories.ordinary import ORDINARY

PAGE = Path(__file__).parents[2] / "docs" / "alert-test-bed.md"

INTRODUCTION = """\
# The alert test bed

Written by `python -m tests.histories.page`; a test compares it with what the code does.

Each line below is a history of a cluster: operations of clients, operators and brokers over simulated time, from which
`tests/histories` makes the records that broker 4.4.0 writes for them, in its order. They go through the fold, the alert
rules and the life cycle of alerts with the default settings, an evaluation every five seconds. No alert is to fire for
an ordinary operation, and one of the expected alerts for every incident. An application crashes, hangs or restarts here
as Kafka's own client does: it gives up after two heartbeats without its source topics, each thread is a member, and
Kubernetes starts it again after 10 s, 20 s and so on up to 5 min.
"""


OUTAGE, OUTAGE_UNKNOWN = "nothing is processed, and work waits", "the same, and it is not known whether work waits"
JOB_AWAY, PART = "it begins while the job is down", "a part is not processed, or late, or interrupted"
OTHER = "descriptions, copies, tenants"
KINDS = (OUTAGE, OUTAGE_UNKNOWN, JOB_AWAY, PART, OTHER)


class _Outcomes(Mapping[str, Outcome]):
    """Runs each history when its outcome is first asked for: all of them take minutes, and one test need not."""

    def __init__(self, histories: Iterable[History]) -> None:
        self._histories, self._known = {history.name: history for history in histories}, dict[str, Outcome]()

    def __getitem__(self, name: str) -> Outcome:
        if name not in self._known:
            self._known[name] = run(self._histories[name])
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._histories)

    def __len__(self) -> int:
        return len(self._histories)


@cache
def outcomes() -> Mapping[str, Outcome]:
    """Return the outcome of each history by its name."""
    return _Outcomes((*ORDINARY, *INCIDENTS))


def kind_of(history: History, outcome: Outcome) -> str:
    """Return which kind of incident it is, by what it concerns first."""
    if not outcome.incidents:
        return OTHER
    first = min(outcome.incidents, key=lambda one: one.opened_at).timeline[0]
    begins = history.begins
    downs = [(one.at, one.arguments["seconds"]) for one in history.operations if one.action == "job_down"]
    if any(at <= begins + 300 and begins < at + seconds for at, seconds in downs):
        return JOB_AWAY
    if first.verdict not in {"Down", "Stalled"} or first.severity != "critical":
        return PART
    return OUTAGE if any(one.action == "read" for one in history.operations) else OUTAGE_UNKNOWN


def _by_kind(found: Mapping[str, Outcome]) -> Iterable[tuple[str, ...]]:
    seconds: dict[str, list[float]] = {}
    for history in INCIDENTS:
        if (at := detection_seconds(history, found[history.name])) is not None:
            seconds.setdefault(kind_of(history, found[history.name]), []).append(at)
    for kind in KINDS:
        if known := sorted(seconds.get(kind, ())):
            p95 = known[-(-95 * len(known) // 100) - 1]
            yield kind, str(len(known)), f"{median(known):.0f}", f"{p95:.0f}", f"{known[-1]:.0f}"


def render_page() -> str:
    """Return the page."""
    found = outcomes()
    false_alarms = sum(len(found[history.name].fired) for history in ORDINARY)
    days = sum(history.seconds for history in ORDINARY) / DAY
    detected = [
        seconds for history in INCIDENTS if (seconds := detection_seconds(history, found[history.name])) is not None
    ]
    summary = _table(
        ("", ""),
        (
            ("ordinary operations", f"{len(ORDINARY)}, {days:.0f} days"),
            ("false alarms", str(false_alarms)),
            ("incidents", str(len(INCIDENTS))),
            ("incidents detected", str(len(detected))),
            ("seconds until the first alert, median", f"{median(detected):.0f}"),
            ("notifications for each incident, average", f"{_average_notifications(found):.1f}"),
        ),
    )
    parts = [
        INTRODUCTION,
        summary,
        "## Seconds until the first alert, by kind\n",
        _table(("kind", "incidents", "median", "95 %", "slowest"), _by_kind(found)),
        "## Incidents\n",
        "Seconds count from when it begins to go wrong, which includes the time until the alert's condition holds; in\n"
        "brackets is when a second rule fires. Notifications are those that fire and those that resolve.\n",
        _table(
            ("incident", "alert", "seconds", "notifications"), (_incident(one, found[one.name]) for one in INCIDENTS)
        ),
        "## Seconds by rule\n",
        _table(("alert", "incidents", "fastest", "slowest"), _by_rule(found)),
        "## Ordinary operations\n",
        _table(
            ("operation", "simulated time", "false alarms"),
            ((one.name, format_duration(one.seconds), str(len(found[one.name].fired))) for one in ORDINARY),
        ),
    ]
    return "\n".join(parts).rstrip() + "\n"


def detection_seconds(history: History, outcome: Outcome) -> float | None:
    """Return how long it took until an expected alert fired; None if none did."""
    times = [fired.at - history.begins for fired in outcome.fired if fired.rule in history.rules]
    return min(times, default=None)


def _incident(history: History, outcome: Outcome) -> tuple[str, ...]:
    first: dict[str, float] = {}
    for fired in outcome.fired:
        first.setdefault(fired.rule, fired.at - history.begins)
    seconds = [f"{at:.0f}" for at in first.values()]
    return (
        history.name,
        ", ".join(_link(rule) for rule in first) or "none",
        seconds[0] + "".join(f" ({one})" for one in seconds[1:]) if seconds else "never",
        str(outcome.notifications),
    )


def _by_rule(found: Mapping[str, Outcome]) -> Iterable[tuple[str, ...]]:
    seconds: dict[str, list[float]] = {}
    for history in INCIDENTS:
        first: dict[str, float] = {}
        for fired in found[history.name].fired:
            first.setdefault(fired.rule, fired.at - history.begins)
        for rule, at in first.items():
            seconds.setdefault(rule, []).append(at)
    return (
        (_link(rule), str(len(all_of)), f"{min(all_of):.0f}", f"{max(all_of):.0f}")
        for rule, all_of in sorted(seconds.items())
    )


def _average_notifications(found: Mapping[str, Outcome]) -> float:
    return sum(found[history.name].notifications for history in INCIDENTS) / len(INCIDENTS)


def _link(rule: str) -> str:
    return f"[{rule}](../deploy/RUNBOOK.md#{rule.lower()})"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_page(), "utf-8")
    sys.stdout.write(f"{PAGE.name} written\n")


if __name__ == "__main__":
    main()

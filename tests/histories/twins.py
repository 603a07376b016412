"""Groups with the same topology on the same topics: the two colours of a deployment, canaries, and lasting copies."""

from __future__ import annotations

from typing import Any

from tests.histories.history import (
    BEGINS,
    DAY,
    DOWN,
    FEW,
    HOUR,
    TRAFFIC,
    Operations,
    do,
    incident,
    ordinary,
    start,
    stop,
)

_LEFT, _RIGHT = ["a", "b"], ["c", "d"]
_LONG = 1.1 * DAY


def _twins(left: str = "left", right: str = "right", **reads: Any) -> Operations:
    """Run the same application under two ids from the beginning, both of which process every record."""
    return [
        *start(_LEFT, group=left),
        *start(_RIGHT, group=right),
        *do(TRAFFIC, "read", group=left, **reads),
        *do(TRAFFIC + 5, "read", group=right, log_of=left),
    ]


def _blue(**reads: Any) -> Operations:
    return start(_LEFT, group="blue") + do(TRAFFIC, "read", group="blue", **reads)


def _green(at: float, begins: str = "committed") -> Operations:
    return start(_RIGHT, at, group="green") + do(at + 5, "read", group="green", log_of="blue", begins=begins)


def _swaps(hours: int) -> Operations:
    """Alternate between two groups every 12 hours, which run together for an hour each time."""
    return [
        one
        for n, at in enumerate(n * HOUR for n in range(12, hours, 12))
        for one in (
            *(start(_LEFT, at, group="blue") if n % 2 else start(_RIGHT, at, group="green") if n else _green(at)),
            *stop(_RIGHT if n % 2 else _LEFT, at + HOUR),
        )
    ]


TWIN_ORDINARY = (
    ordinary(
        "Green runs next to blue for two hours, and blue is stopped",
        _blue(),
        _green(BEGINS),
        stop(_LEFT, BEGINS + 2 * HOUR),
        hours=12,
        topics=FEW,
    ),
    ordinary(
        "Blue and green take turns every 12 hours, and run together for an hour each time",
        _blue(rate=1.0),
        _swaps(52),
        hours=52,
        topics=FEW,
    ),
    ordinary(
        "A canary under another id runs for thirty hours, and the old one is stopped",
        _blue(rate=1.0),
        _green(6 * HOUR),
        stop(_LEFT, 36 * HOUR),
        hours=42,
        topics=FEW,
    ),
    ordinary(
        "Two copies of an application have run side by side for more than a day, and one ends",
        _twins(rate=1.0),
        stop(_LEFT, _LONG, action="kill"),
        hours=30,
        topics=FEW,
    ),
    ordinary(
        "An application gets another topology under another id, which is declared as the successor",
        _blue(),
        start(_RIGHT, BEGINS, group="green", changelogs=("log",)),
        do(BEGINS + 5, "read", group="green", log_of="blue", begins="latest"),
        stop(_LEFT, BEGINS + HOUR),
        topics={"in": 2, "log": 2},
        settings={"successors": {"blue": "green"}},
    ),
)

TWIN_INCIDENTS = (
    incident(
        "Two copies of an application have run side by side for more than a day, and both die, one two minutes later",
        DOWN,
        _twins(rate=1.0),
        stop(_LEFT, _LONG, action="kill"),
        stop(_RIGHT, _LONG + 120, action="kill"),
        start(_RIGHT, _LONG + HOUR, group="right"),  # the other one is still down
        hours=30,
        begins=_LONG,
        topics=FEW,
    ),
    incident(
        "An application gets another topology under another id, which nobody declares as the successor",
        DOWN,
        _blue(),
        start(_RIGHT, BEGINS, group="green", changelogs=("log",)),
        do(BEGINS + 5, "read", group="green", log_of="blue", begins="latest"),
        stop(_LEFT, BEGINS + HOUR),
        begins=BEGINS + HOUR,
        topics={"in": 2, "log": 2},
    ),
    incident(
        "Two copies of two hours die with their host, one a little later; the other one is started again",
        DOWN,
        start(_LEFT, group="left", host="10.4.0.1"),
        start(_RIGHT, group="right", host="10.4.0.1"),
        do(TRAFFIC, "read", group="left"),
        do(TRAFFIC + 5, "read", group="right", log_of="left"),
        stop(_LEFT, BEGINS, action="kill"),
        stop(_RIGHT, BEGINS + 40, action="kill"),
        start(_RIGHT, BEGINS + HOUR, group="right", host="10.4.0.1"),
        topics=FEW,
    ),
    incident(
        "The successor that was declared dies together with the application that it is to take over",
        DOWN,
        _blue(),
        _green(BEGINS),
        stop(_LEFT, BEGINS + HOUR),
        stop(_RIGHT, BEGINS + HOUR + 60, action="kill"),
        begins=BEGINS + HOUR,
        topics=FEW,
        settings={"successors": {"blue": "green"}},
    ),
)

"""Groups with the same topology on the same topics: the two colours of a deployment, canaries, and lasting copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.histories.history import (
    BEGINS,
    DAY,
    DOWN,
    FEW,
    FEW_AND_LOG,
    HOUR,
    MINUTE,
    STATE,
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
_STORES = {"orders": "sums", "payments": "totals", "search": "index"}
DEATHS_OF_READERS = {group: BEGINS + n * 10 * MINUTE for n, group in enumerate(_STORES)}
"""When each of the applications that read one topic dies."""


def _twins(left: str = "left", right: str = "right", **reads: Any) -> Operations:
    """Run the same application under two ids from the beginning, both of which process every record."""
    return [
        *start(_LEFT, group=left, **STATE),
        *start(_RIGHT, group=right, **STATE),
        *do(TRAFFIC, "read", group=left, **reads),
        *do(TRAFFIC + 5, "read", group=right, log_of=left),
    ]


def _blue(**reads: Any) -> Operations:
    return start(_LEFT, group="blue", **STATE) + do(TRAFFIC, "read", group="blue", **reads)


def _green(at: float, begins: str = "committed") -> Operations:
    return start(_RIGHT, at, group="green", **STATE) + do(at + 5, "read", group="green", log_of="blue", begins=begins)


def _swaps(hours: int) -> Operations:
    """Alternate between two groups every 12 hours, which run together for an hour each time."""
    return [
        one
        for n, at in enumerate(n * HOUR for n in range(12, hours, 12))
        for one in (
            *(
                start(_LEFT, at, group="blue", **STATE)
                if n % 2
                else start(_RIGHT, at, group="green", **STATE)
                if n
                else _green(at)
            ),
            *stop(_RIGHT if n % 2 else _LEFT, at + HOUR),
        )
    ]


def _overlap(blue: str, green: str) -> Operations:
    """Run green next to blue for five minutes, and stop blue; these are the changelogs of both."""
    return [
        *start(_LEFT, group="blue", changelogs=(blue,)),
        *do(TRAFFIC, "read", group="blue"),
        *start(_RIGHT, BEGINS, group="green", changelogs=(green,)),
        *do(BEGINS + 5, "read", group="green", log_of="blue", begins="committed"),
        *stop(_LEFT, BEGINS + 5 * MINUTE),
    ]


def _of_one_topic(changelogs: Mapping[str, tuple[str, ...]]) -> Operations:
    """Run three applications that read one topic; each dies some minutes after the one before."""
    first, *others = DEATHS_OF_READERS
    return [
        one
        for group in DEATHS_OF_READERS
        for one in (
            *start(_names(group), group=group, changelogs=changelogs.get(group, ())),
            *do(TRAFFIC + (group != first) * 5, "read", group=group, log_of=first if group in others else None),
            *stop(_names(group), DEATHS_OF_READERS[group], action="crash"),
        )
    ]


def _names(group: str) -> list[str]:
    return [f"{group}-a", f"{group}-b"]


TWIN_ORDINARY = (
    ordinary(
        "Green overlaps blue for five minutes, and each has its prefix in its internal topics",
        _overlap("blue-sums-changelog", "green-sums-changelog"),
        topics={"in": 2, "blue-sums-changelog": 2, "green-sums-changelog": 2},
    ),
    ordinary(
        "Green overlaps blue for five minutes, and both have the same internal topics",
        _overlap("shop-sums-changelog", "shop-sums-changelog"),
        topics={"in": 2, "shop-sums-changelog": 2},
    ),
    ordinary(
        "Green runs next to blue for two hours, and blue is stopped",
        _blue(),
        _green(BEGINS),
        stop(_LEFT, BEGINS + 2 * HOUR),
        hours=12,
        topics=FEW_AND_LOG,
    ),
    ordinary(
        "Blue and green take turns every 12 hours, and run together for an hour each time",
        _blue(rate=1.0),
        _swaps(52),
        hours=52,
        topics=FEW_AND_LOG,
    ),
    ordinary(
        "A canary under another id runs for thirty hours, and the old one is stopped",
        _blue(rate=1.0),
        _green(6 * HOUR),
        stop(_LEFT, 36 * HOUR),
        hours=42,
        topics=FEW_AND_LOG,
    ),
    ordinary(
        "Two copies of an application have run side by side for more than a day, and one ends",
        _twins(rate=1.0),
        stop(_LEFT, _LONG, action="kill"),
        hours=30,
        topics=FEW_AND_LOG,
    ),
    ordinary(
        "An application gets another topology under another id, which is declared as the successor",
        _blue(),
        start(_RIGHT, BEGINS, group="green", changelogs=("other",)),
        do(BEGINS + 5, "read", group="green", log_of="blue", begins="latest"),
        stop(_LEFT, BEGINS + HOUR),
        topics={**FEW_AND_LOG, "other": 2},
        settings={"successors": {"blue": "green"}},
    ),
)

TWIN_INCIDENTS = (
    incident(
        "Three applications with state of their own read one topic, and die one after the other",
        DOWN,
        _of_one_topic({group: (f"{group}-{store}-changelog",) for group, store in _STORES.items()}),
        topics={"in": 2, **{f"{group}-{store}-changelog": 2 for group, store in _STORES.items()}},
    ),
    incident(
        "Three applications without internal topics read one topic, and die one after the other",
        DOWN,
        _of_one_topic({}),
        topics=FEW,
    ),
    incident(
        "Two copies of an application have run side by side for more than a day, and both die, one two minutes later",
        DOWN,
        _twins(rate=1.0),
        stop(_LEFT, _LONG, action="kill"),
        stop(_RIGHT, _LONG + 120, action="kill"),
        start(_RIGHT, _LONG + HOUR, group="right", **STATE),  # the other one is still down
        hours=30,
        begins=_LONG,
        topics=FEW_AND_LOG,
    ),
    incident(
        "An application gets another topology under another id, which nobody declares as the successor",
        DOWN,
        _blue(),
        start(_RIGHT, BEGINS, group="green", changelogs=("other",)),
        do(BEGINS + 5, "read", group="green", log_of="blue", begins="latest"),
        stop(_LEFT, BEGINS + HOUR),
        begins=BEGINS + HOUR,
        topics={**FEW_AND_LOG, "other": 2},
    ),
    incident(
        "Two copies of two hours die with their host, one a little later; the other one is started again",
        DOWN,
        start(_LEFT, group="left", host="10.4.0.1", **STATE),
        start(_RIGHT, group="right", host="10.4.0.1", **STATE),
        do(TRAFFIC, "read", group="left"),
        do(TRAFFIC + 5, "read", group="right", log_of="left"),
        stop(_LEFT, BEGINS, action="kill"),
        stop(_RIGHT, BEGINS + 40, action="kill"),
        start(_RIGHT, BEGINS + HOUR, group="right", host="10.4.0.1", **STATE),
        topics=FEW_AND_LOG,
    ),
    incident(
        "The successor that was declared dies together with the application that it is to take over",
        DOWN,
        _blue(),
        _green(BEGINS),
        stop(_LEFT, BEGINS + HOUR),
        stop(_RIGHT, BEGINS + HOUR + 60, action="kill"),
        begins=BEGINS + HOUR,
        topics=FEW_AND_LOG,
        settings={"successors": {"blue": "green"}},
    ),
)

"""A labelled history, and what its operations are made of: each function gives operations as data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from tests.histories.simulation import Operation

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
BEGINS = 2 * HOUR  # most histories: by then the application has run for a while
TRAFFIC = 60.0  # when records begin to flow
BACK_OFF = (10.0, 20.0, 40.0, 80.0, 160.0)  # CrashLoopBackOff of Kubernetes, then always 5 minutes
_LONGEST_BACK_OFF = 300.0
END = BEGINS + 90 * MINUTE
DOWN, STALLED, UNSTABLE, BEHIND = "GroupDown", "GroupStalled", "GroupUnstable", "GroupBehind"
STATIC = {"static": True}

STATE = {"changelogs": ("log",)}
TOPICS = {"in": 12, "log": 12}  # of applications with state
FEW = {"in": 2}
FEW_AND_LOG = {"in": 2, "log": 2}

Operations = list[Operation]


@dataclass(frozen=True)
class History:
    """What happens on a cluster, and what an on-call person is to hear of it."""

    name: str
    """One line: what somebody does, or what goes wrong."""
    operations: tuple[Operation, ...]
    seconds: float
    rules: frozenset[str] = frozenset()
    """The rules that may fire; at least one of them has to. None: an ordinary operation."""
    begins: float = BEGINS
    """When what goes wrong begins."""
    topics: Mapping[str, int] = field(default_factory=lambda: {"in": 12})
    watched_from: float = 0.0
    """When the job is started; it then reads everything before."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The section `alerts:` of its configuration."""
    later_settings: Mapping[float, Mapping[str, Any]] = field(default_factory=dict)
    """The same section by the times at which it is changed, and the job started again."""
    running_hours: Mapping[str, Any] | None = None
    """When its groups are meant to run, as declared: an item of `time_intervals`."""
    protocol: str = "streams"
    """The protocol of its applications: `streams` or `classic`."""
    is_chosen: bool = False
    """Whether `make test` plays it: the first of its kind, and each in which a group is NotReady. Others are long."""


def ordinary(name: str, *operations: Operations, hours: float = 6.0, **others: Any) -> History:
    """Return a history during which no alert is to fire."""
    return History(name, _in_order(operations), hours * HOUR, **others)


def incident(name: str, rules: str, *operations: Operations, hours: float = 4.0, **others: Any) -> History:
    """Return a history during which one of these rules, without their prefix, is to fire."""
    names = frozenset(f"Streams{rule}" for rule in rules.split())
    return History(name, _in_order(operations), hours * HOUR, names, **others)


def chosen_ordinary(name: str, *operations: Operations, **others: Any) -> History:
    return replace(ordinary(name, *operations, **others), is_chosen=True)


def chosen_incident(name: str, rules: str, *operations: Operations, **others: Any) -> History:
    return replace(incident(name, rules, *operations, **others), is_chosen=True)


def _in_order(operations: Iterable[Operations]) -> tuple[Operation, ...]:
    return tuple(sorted(chain.from_iterable(operations), key=lambda operation: operation.at))


def do(at: float, action: str, **arguments: Any) -> Operations:
    return [Operation(at, action, arguments)]


def hours_of(*times: tuple[str, str], **fields: Any) -> Mapping[str, Any]:
    """Return an item of `time_intervals` with these parts of a day, as begin and end."""
    return {"times": [{"start_time": begin, "end_time": end} for begin, end in times], **fields}


def hang(instances: Iterable[str], at: float, seconds: float | None = None) -> Operations:
    """Let the threads of instances stand still for so long; without `seconds` for ever."""
    operations: Operations = []
    for name in instances:
        operations += do(at, "hang_processing", name=name)
        operations += do(at + seconds, "hang_processing", name=name, hung=False) if seconds else []
    return operations


def names(number: int, prefix: str = "i") -> list[str]:
    return [f"{prefix}{n}" for n in range(number)]


def start(instances: Iterable[str], at: float = 0.0, every: float = 0.5, **settings: Any) -> Operations:
    return [Operation(at + n * every, "start", {"name": name, **settings}) for n, name in enumerate(instances)]


def steady(number: int, **settings: Any) -> Operations:
    """Start so many instances at the beginning."""
    return start(names(number), **settings)


def working(number: int, settings: Mapping[str, Any] = MappingProxyType({}), **reads: Any) -> Operations:
    """Start so many instances at the beginning, and let them process records."""
    return steady(number, **settings) + do(TRAFFIC, "read", **reads)


def stop(instances: Iterable[str], at: float, every: float = 0.2, action: str = "stop") -> Operations:
    return [Operation(at + n * every, action, {"name": name}) for n, name in enumerate(instances)]


def windows(
    days: Iterable[int], opens: Iterable[float], seconds: float, instances: Iterable[str] = ("job",)
) -> Operations:
    """Run instances at the same times of each of these days."""
    names, times = list(instances), list(opens)
    operations: Operations = []
    for at in (day * DAY + time for day in days for time in times):
        operations += start(names, at) + stop(names, at + seconds)
    return operations


def roll(instances: Iterable[str], at: float, every: float, away: float, **settings: Any) -> Operations:
    """Restart instances one after the other, each of them `away` for so long."""
    operations: Operations = []
    for n, name in enumerate(instances):
        operations += stop([name], at + n * every)
        operations += start([name], at + n * every + away, **settings)
    return operations


def copies(at: float, until: float, **reported: Any) -> Operations:
    """Let the job ask for the copies of tasks, once a minute."""
    times = range(round(at), round(until), 60)
    return [Operation(float(time), "report_copies", dict(reported)) for time in times]


def crash_loop(
    name: str,
    at: float,
    up: float,
    until: float,
    *,
    pauses: Iterable[float] = BACK_OFF,
    action: str = "crash",
    **settings: Any,
) -> Operations:
    """Let an instance crash at once, and after each restart when it was `up` for so long."""
    operations: Operations = []
    left, time = iter(pauses), at
    while time < until:
        operations += stop([name], time, action=action)
        time += next(left, _LONGEST_BACK_OFF)
        operations += start([name], time, **settings)
        time += up
    return operations


def restarts(name: str, at: float, until: float, *, up: float, **settings: Any) -> Operations:
    """Start an instance that ends by itself, again and again with the pauses of Kubernetes."""
    operations: Operations = []
    left, time = iter(BACK_OFF), at
    while time < until:
        operations += start([name], time, **settings)
        time += up + next(left, _LONGEST_BACK_OFF)
    return operations

"""Random histories of operations: a source of histories that no author chose. The same seed, the same history.

Nothing is expected of a random history, so that only relations can be played on it.
"""

from collections.abc import Callable
from random import Random

from tests.histories.history import FEW_AND_LOG, HOUR, MINUTE, STATE, TRAFFIC, History, Operations, do, start, stop
from tests.relations.engine import random_of

_HOURS = 3.0
_FIRST, _LAST = 20 * MINUTE, (_HOURS - 0.5) * HOUR
_GROUPS = ("app", "other")
_SOURCES = {"app": "in", "other": "others-in"}
_TOPICS = {**FEW_AND_LOG, "others-in": 2}


def random_history(number: int) -> History:
    """Return a history of one or two groups with operations at random times, except in its last half hour."""
    random = random_of("random history", number)
    operations: Operations = []
    for group in _GROUPS[: random.choice((1, 1, 2))]:
        operations += _Application(group, random).live()
    in_order = tuple(sorted(operations, key=lambda one: one.at))
    return History(f"Random history {number}", in_order, _HOURS * HOUR, begins=_FIRST, topics=_TOPICS)


class _Application:
    """One group: which of its instances run, and what happens to it."""

    def __init__(self, group: str, random: Random) -> None:
        self.group, self.random, self.started = group, random, 0
        self.settings = {"group": group, **random.choice(({}, STATE))}
        self.settings |= random.choice(({}, {}, {"static": True}))
        self.settings["sources"] = (_SOURCES[group],)  # each has its own, as each has its own rate of records
        self.running: list[str] = []
        self.operations: Operations = []

    def live(self) -> Operations:
        random, at = self.random, _FIRST
        for n in range(random.randint(1, 3)):
            self.join(n * 1.0)
        speed = {"rate": random.choice((0.1, 10.0)), "capacity": random.choice((12.0, 50.0))}
        restore = random.choice((0.0, 60.0, 900.0))
        self.operations += do(TRAFFIC, "read", group=self.group, restore_seconds=restore, **speed)
        while at < _LAST:
            random.choice(_KINDS)(self, at)
            at += random.choice((60.0, 300.0, 1_200.0, 2_400.0)) + random.randint(0, 50)
        return self.operations

    def join(self, at: float) -> None:
        name, self.started = f"{self.group}-i{self.started}", self.started + 1
        self.running.append(name)
        self.operations += start([name], at, **self.settings)

    def leave(self, at: float) -> None:
        if self.running:
            name = self.running.pop()
            self.operations += stop([name], at, action=self.random.choice(("stop", "crash", "kill")))

    def all_leave(self, at: float) -> None:
        while self.running:
            self.leave(at)

    def crash(self, at: float) -> None:
        if self.running:
            name = self.random.choice(self.running)
            self.operations += stop([name], at, action=self.random.choice(("crash", "kill")))
            self.operations += start([name], at + self.random.choice((5, 20, 40)), **self.settings)

    def deploy(self, at: float) -> None:
        for n, name in enumerate(self.running):
            self.operations += stop([name], at + n * 15) + start([name], at + n * 15 + 10, **self.settings)

    def delete(self, at: float) -> None:
        self.operations += stop(self.running, at, 0.0)
        self.running = []
        self.operations += do(at + 50, self.random.choice(("delete", "to_classic")), group=self.group)

    def expire(self, at: float) -> None:
        if self.running:
            name = self.random.choice(self.running)
            self.operations += do(at, "expire", name=name) + do(at + 30, "rejoin", name=name)

    def reset(self, at: float) -> None:
        self.operations += do(at, "go_back", group=self.group, by=self.random.choice((100.0, 50_000.0)))

    def lose_broker(self, at: float) -> None:
        away = self.random.choice((60.0, 1_200.0))
        self.operations += do(
            at, "lose_leaders", partitions=[self.random.randint(0, 1)], seconds=away, group=self.group
        )

    def stick(self, at: float) -> None:
        self.operations += do(at, "stick", partitions=[0], group=self.group)

    def hang(self, at: float) -> None:
        if self.running:
            self.operations += do(at, "hang_processing", name=self.running[0], group=self.group)

    def produce(self, at: float) -> None:
        self.operations += do(at, "change", group=self.group, rate=self.random.choice((0.0, 0.1, 10.0, 40.0)))


_KINDS: tuple[Callable[[_Application, float], None], ...] = (
    _Application.join,
    _Application.leave,
    _Application.all_leave,
    _Application.crash,
    _Application.deploy,
    _Application.delete,
    _Application.expire,
    _Application.reset,
    _Application.lose_broker,
    _Application.stick,
    _Application.hang,
    _Application.produce,
)

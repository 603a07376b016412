"""The whole job next to honest groups, and probes: how soon their rows and their alerts are there during an attack.

Everything that a probe needs is there before an attack begins, as at a platform whose tenants come one after the other.
A probe lets one honest group get a second member, until its row says so, and lets another one get stuck, as the topic
that it reads is gone, until the webhook has its alert.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from bench.bench_harness import repeating
from bench.memory import format_megabytes, proportional_by_process
from streaming_app.checks.verification import WarehouseTables
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.tables.reader import quote
from tests.long.bed import CLUSTER, Bed, DidNotRecoverError, join
from tests.support.offsets_log import compare_rows
from tests.support.receivers import HttpReceiver
from tests.support.waiting import MINUTES, await_topics, delete_topic, wait_until

STUCK_RULE, STUCK_FOR_SECONDS = "StreamsGroupDown", 2.0
MOST_ROW_SECONDS, MOST_ALERT_SECONDS, MOST_MEMORY = 10.0, STUCK_FOR_SECONDS + 10.0, 1.5
"""What is promised: seconds until a row and until an alert, and memory relative to that without an attack."""
_PLAY_SECONDS, _SAMPLE_SECONDS = 150.0, 0.5
_CALM_PROBES, _PROBES = 2, 3
_ATTEMPTS = 3

Play = Callable[["AttackBed"], None]


Probe = dict[str, float]
"""Seconds until an honest group's `row`, and until an honest `alert` with its `for`; without those that never came."""


class Outcome(NamedTuple):
    probes: list[Probe]
    memory: Counter[str]
    """The most bytes of the job, in `sum` and by kind of process."""
    found: list[str]
    """What must not be, however fast this machine is."""


class AttackBed(Bed):
    """`probe` works as often as there are `probes`."""

    def __init__(self, directory: Path, *, probes: int = 1 + _CALM_PROBES + _PROBES, megabytes: int = 2_000) -> None:
        super().__init__(directory, LocalBroker(directory / "broker"), megabytes=megabytes)
        self.ending = threading.Event()
        """Set when the attack is to end."""
        self._probes = probes
        self._left: list[tuple[SimulatedMember, SimulatedMember]] = []
        """For each probe a member of a group that is to grow, and one of a group with the name of its topic."""
        self.honest: list[str] = []
        """The ids of the honest groups."""

    def _prepare(self) -> None:
        self._stack.callback(self.ending.set)
        self.receiver = self._stack.enter_context(HttpReceiver())
        self.client.create_topic("orders-in", 2)
        for number in range(self._probes):
            topic = f"payments-{number}"
            self.client.create_topic(topic, 2)
            self._left.append((self._join(f"orders-{number}", "orders-in"), self._join(topic, topic)))
        members = [member for one in self._left for member in one]
        self.honest = [one.group_id for one in members]
        settle(members)
        self.config = {
            "alerts": {"rules": {STUCK_RULE: {"for": STUCK_FOR_SECONDS}}},
            "sinks": [{"type": "webhook", "url": self.receiver.url}],
            "metrics": {"listen": "127.0.0.1:0"},
        }

    def ensure_running(self) -> None:
        """Raise DidNotRecoverError if the job has ended: nobody starts it again."""
        if not self.is_alive:
            raise DidNotRecoverError(f"the job has ended: {self.job.output[-2000:]}")

    @property
    def is_alive(self) -> bool:
        """Whether the job still runs, without having been started again."""
        return self.job.pid is not None

    # What honest groups and viewers see

    def probe(self) -> Probe:
        """Let one honest group grow and another one get stuck; return how long it took until both were known."""
        growing, stuck = self._left.pop()
        with suppress(KafkaError):  # the topic is gone before all of its partitions are
            delete_topic(self.client, stuck.group_id)
        if not wait_until(lambda: _is_stuck(stuck), interval=0.1):
            raise TimeoutError("the broker does not find that a topic is missing")
        began = time.monotonic()
        SimulatedMember(self.client, growing.group_id, growing.topology).join()
        checks: dict[str, Callable[[], bool]] = {
            "row": lambda: self._has_two_members(growing.group_id),
            "alert": lambda: self._was_notified(stuck.group_id),
        }
        seen: Probe = {}

        def is_over() -> bool:
            for name, holds in checks.items():
                if name not in seen and holds():
                    seen[name] = time.monotonic() - began
            return len(seen) == len(checks) or not self.is_alive

        wait_until(is_over, interval=0.1)
        return seen

    @contextmanager
    def memory(self) -> Iterator[Counter[str]]:
        """Give the most bytes since the block began, in `sum` and of each kind of process of the job by itself."""
        most: Counter[str] = Counter()

        def sample() -> None:
            if pid := self.job.pid:
                now = proportional_by_process(pid)
                now["sum"] = sum(now.values())
                most.update({name: size - most[name] for name, size in now.items() if size > most[name]})

        with repeating(sample, _SAMPLE_SECONDS):
            yield most

    def compare_honest_groups(self) -> list[str]:
        """Return where the rows of honest groups differ from the broker's; their sessions may end meanwhile."""
        found: list[str] = []
        for _ in range(_ATTEMPTS):
            rows = WarehouseTables(self.warehouse, CLUSTER).rows(self.honest)
            found = list(map(str, compare_rows(rows, self.client.describe(self.honest))))
            if not found:
                break
            self.settle()
        return found

    # Attacks

    def play(self, play: Play, probes: int = _PROBES) -> Outcome:
        """Play an attack, with so many probes meanwhile."""
        found: list[str] = []
        self.ending.clear()

        def attack() -> None:
            again = retry_if_exception_type((KafkaError, OSError))
            try:
                Retrying(retry=again, stop=stop_after_attempt(_ATTEMPTS), reraise=True)(play, self)
            except Exception as error:  # noqa: BLE001 - whatever it is, the attack was not played
                found.append(f"the attack ended: {type(error).__name__}: {str(error)[:200]}")

        with self.memory() as memory:
            thread = threading.Thread(target=attack, daemon=True)
            thread.start()
            time.sleep(1)  # noqa: TID251 - the first probe finds an attack that goes on
            seen = [self.probe() for _ in range(probes) if self.is_alive]
            thread.join(_PLAY_SECONDS)
            self.ending.set()
            thread.join(MINUTES)
            self.settle()
            text = self.get("/metrics")
        found += [f"{one} has no series" for one in self.honest if f'group="{one}"' not in text]
        found += [f"an honest row or alert never came: {one}" for one in seen if len(one) < 2]
        return Outcome(seen, memory, found)

    def withstand(self, name: str, play: Play) -> None:
        """Play an attack, and note what is promised and does not hold, compared with the same without the attack."""
        self.probe()  # what is slow only once
        with self.memory() as calm_memory:
            calm = [self.probe() for _ in range(_CALM_PROBES)]
        outcome = self.play(play)
        self.broken += outcome.found
        for what, most in (("row", MOST_ROW_SECONDS), ("alert", MOST_ALERT_SECONDS)):
            before, worst = (max(one.get(what, 0.0) for one in probes) for probes in (calm, outcome.probes))
            self.shown.append(f"{what}: calm {before:.1f} s, worst {worst:.1f} s")
            self.broken += [f"{name}: an honest {what} took {worst:.1f} s"] if worst > most else []
        memory = outcome.memory["sum"] / max(1.0, calm_memory["sum"])
        self.shown.append(f"memory: x {memory:.2f}, {format_megabytes(outcome.memory)}")
        self.broken += [f"{name}: {memory:.2f} times the memory"] if memory > MOST_MEMORY else []
        self.expect(bool(outcome.probes))

    def _was_notified(self, group_id: str) -> bool:
        """Return whether the webhook has an alert of the honest incident's rule about this group."""
        bodies = [one.body for one in list(self.receiver.requests)]
        return any(json.loads(body)["data"].get("group_id") == group_id for body in bodies if group_id.encode() in body)

    def _has_two_members(self, group_id: str) -> bool:
        with suppress(Exception):  # the table may be written right now
            return bool(self.rows(f"SELECT 1 FROM groups WHERE group_id = {quote(group_id)} AND member_count = 2"))
        return False

    def _join(self, group_id: str, topic: str) -> SimulatedMember:
        await_topics(self.client, f"{group_id}-warm", topology(subtopology("0", source_topics=[topic])))
        return join(self.client, group_id, topic=topic)


def _is_stuck(member: SimulatedMember) -> bool:
    member.step()
    return any(name == "MISSING_SOURCE_TOPICS" for name, _ in member.statuses)

"""The story of the demo: an application in trouble, step by step, on the real broker while the page is open.

Three pods process `web-orders` and write `enriched-orders`, which another application reads. They are simulated, as all
members of the demo are: they send real heartbeats and commits, and what they process is real records. For each step a
line says what happens and where to look. A step that the page is to show waits until the tables have it.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError

from streaming_app.errors import WarehouseError, error_line
from streaming_app.health.verdict import DOWN, GOOD
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.kafka.protocol import Fields, GroupError
from streaming_app.sandbox.demo_groups import rejoin
from streaming_app.sandbox.member import SimulatedMember, build_description, internal_topic, subtopology, topology
from streaming_app.tables.location import Location
from streaming_app.tables.reader import WarehouseReader, of_group

GROUP, DOWNSTREAM = "web-orders-enrich", "web-orders-totals"
SOURCE, RESULT = "web-orders", "enriched-orders"
BROKER_PROPERTIES = {"group.streams.min.session.timeout.ms": "5000"}
"""Of the demo's broker: a pod that dies is missed soon."""
_PARTITIONS = 6
_RATE, _BURST, _CAPACITY = 60, 900, 240  # records a second
_TICK_SECONDS = 0.5
_SESSION, _LEAST_SESSION = 45.0, 15.0  # seconds; the least is for busy machines
_RESTORE = 5_000  # offsets of the changelog of a task
_SEEN_SECONDS = 300.0  # how long a step waits for the tables


class Step(NamedTuple):
    """What happens, and where to look."""

    title: str
    look: str
    """What there is to see."""
    path: str
    """Of the page."""


@dataclass(eq=False)
class _Pod:
    """An instance of an application."""

    member: SimulatedMember
    restoring: dict[int, int] = field(default_factory=dict)
    """By partition: how much of its state it has."""
    reports: bool = False
    """Whether its last heartbeat said that it restores."""
    runs: bool = True

    @property
    def partitions(self) -> list[int]:
        return self.member.owned["active"].get("0", [])


class _Application:
    """Pods that read a topic, and write another one if there is one."""

    def __init__(self, client: StreamsGroupClient, group_id: str, source: str, session_ms: int) -> None:
        self.group_id, self.source = group_id, source
        self.pods: list[_Pod] = []
        self.positions: dict[int, int] = defaultdict(int)
        self.restores = False
        """Whether tasks that move have to restore their state."""
        self.restored_at_once = 0
        """Offsets of the changelog for each tick."""
        self._client, self._started = client, 0
        changelog = internal_topic(f"{group_id}-state-changelog", configs={"cleanup.policy": "compact"})
        self.topology = topology(subtopology("0", source_topics=[source], state_changelog_topics=[changelog]))
        client.configure_group(group_id, {"streams.session.timeout.ms": session_ms})

    def start_pod(self) -> None:
        """Let another pod join."""
        self._started += 1
        name = f"{self.group_id}-{self._started}"
        member = SimulatedMember(self._client, self.group_id, self.topology, process_id=name, rack_id="rack-a")
        member.join()
        self.pods.append(_Pod(member))

    def tick(self, ends: dict[int, int], at_most: int) -> dict[int, int]:
        """Let each pod send its heartbeat and process so many records; return how many were processed by partition."""
        processed: dict[int, int] = {}
        for pod in self.pods:
            if pod.runs:
                try:
                    processed |= self._work(pod, ends, at_most)
                except GroupError as error:  # a rebalance, a missing topic, or this machine was too busy
                    rejoin(pod.member, error)  # else the next tick tries again
        return processed

    def _work(self, pod: _Pod, ends: dict[int, int], at_most: int) -> dict[int, int]:
        before = set(pod.partitions)
        self._heartbeat(pod)
        if self.restores:
            pod.restoring |= dict.fromkeys(set(pod.partitions) - before, 1)  # 0 would be unknown
        mine = [one for one in pod.partitions if one not in pod.restoring]
        done = {one: min(at_most, ends.get(one, 0) - self.positions[one]) for one in mine}
        done = {one: number for one, number in done.items() if number > 0}
        offsets = {(self.source, one): self.positions[one] + number for one, number in done.items()}
        if offsets:
            self._client.commit_offsets(self.group_id, offsets, pod.member.member_id, pod.member.epoch)
        for one, number in done.items():
            self.positions[one] += number
        return done

    def _heartbeat(self, pod: _Pod) -> None:
        if not pod.restoring and not pod.reports:
            pod.member.step()
            return
        pod.restoring = {
            one: has + self.restored_at_once
            for one, has in pod.restoring.items()
            if one in pod.partitions and has + self.restored_at_once < _RESTORE
        }
        reported = [{"subtopology_id": "0", "partition": one, "offset": has} for one, has in pod.restoring.items()]
        ends = [{**one, "offset": _RESTORE} for one in reported]
        pod.member.heartbeat(task_offsets=reported, task_end_offsets=ends)
        pod.reports = bool(reported)
        if not pod.member.settled:
            pod.member.acknowledge()


class Story:
    """Plays from `start` to `close`."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing it needs
        self,
        client: StreamsGroupClient,
        bootstrap_server: str,
        tables: tuple[Location, str],
        say: Callable[[str], None],
        url: Callable[[], str],
        pace: float,
    ) -> None:
        """Prepare it.

        `tables` are the warehouse of the job, and the cluster's name there; `url` returns the page's address; `pace` is
        how many times as fast as in five minutes it is.
        """
        self._client, self._server, self._say, self._url, self._pace = client, bootstrap_server, say, url, pace
        self._warehouse, self._cluster = tables
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="story", daemon=True)
        self._ends: dict[int, int] = defaultdict(int)
        self._results: dict[int, int] = defaultdict(int)
        self._rate = 0.0
        self._producer: KafkaProducer | None = None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop; the pods do not leave."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        try:
            self._prepare()
            for step in self._steps():
                if step and not self._stop.is_set():
                    self._say(f"\n{step.title}\n  Look at {self._url()}{step.path}\n  {step.look}")
                if self._stop.is_set():
                    return
        except (KafkaError, GroupError, TimeoutError) as error:
            if not self._stop.is_set():
                self._say(f"The story ends early: {error_line(error)}")
        finally:
            if self._producer:
                self._producer.close(1)

    def _prepare(self) -> None:
        for topic in (SOURCE, RESULT):
            self._client.create_topic(topic, _PARTITIONS)
        self._open_producer()
        session_ms = round(max(_LEAST_SESSION, _SESSION / self._pace) * 1000)
        self._enrich = _Application(self._client, GROUP, SOURCE, session_ms)
        self._totals = _Application(self._client, DOWNSTREAM, RESULT, 300_000)
        for _ in range(3):
            self._enrich.start_pod()
        self._totals.start_pod()
        self._enrich.pods[0].member.push_description(description=_writes(self._enrich.topology, RESULT))

    def _open_producer(self) -> None:
        if self._producer:
            self._producer.close(1)
        self._producer = KafkaProducer(bootstrap_servers=self._server, metadata_max_age_ms=500, linger_ms=20)

    # What happens. A step is yielded before what it names.

    def _steps(self) -> Iterator[Step | None]:
        self._rate = _RATE
        yield from self._until(lambda: self._is_well(GROUP) and self._is_well(DOWNSTREAM))
        group = f"group?id={GROUP}"
        yield Step("1. All is well: three pods process web-orders.", "Ok, and the lag is nothing", group)
        yield from self._for(20)
        yield Step(
            "2. A deployment begins: a new pod joins, and an old one leaves.",
            "members join and leave, and the assignments over time say why",
            f"{group}#history",
        )
        # Only one: three members that leave after less than 20 minutes are Unstable, and the incident would not end.
        self._enrich.start_pod()
        yield from self._for(15)
        self._leave(self._enrich.pods[0])
        yield from self._for(15)
        yield Step("3. A burst: fifteen times as many orders.", "the lag rises, and falls again", f"{group}#lag")
        self._rate = _BURST
        yield from self._for(20)
        self._rate = _RATE
        yield from self._until(lambda: not self._waiting)
        yield from self._for(10)
        yield Step(
            "4. A pod dies: it sends no more heartbeats, and its tasks wait until the session times out.",
            "the lag of its partitions rises",
            f"{group}#tasks",
        )
        dead = self._enrich.pods[0]
        dead.runs = False
        self._enrich.restores = True
        self._enrich.restored_at_once = max(1, round(_RESTORE * _TICK_SECONDS * self._pace / 25))
        yield from self._until(lambda: len(self._members()) < len(self._enrich.pods))
        self._enrich.pods.remove(dead)
        yield Step(
            "5. A restore: others have its tasks now, and read their state from the changelog first.",
            "R in the task matrix, and how far behind it is",
            f"{group}#tasks",
        )
        yield from self._until(lambda: any(pod.restoring for pod in self._enrich.pods))
        yield from self._until(lambda: not any(pod.restoring for pod in self._enrich.pods))
        self._enrich.start_pod()
        yield from self._until(lambda: not self._waiting and not any(pod.restoring for pod in self._enrich.pods))
        self._enrich.restores = False
        yield from self._for(10)
        yield Step(
            f"6. Somebody deletes the topic {SOURCE}.", "the verdict, as soon as the broker knows that it is gone", ""
        )
        self._rate = 0
        self._client.delete_topic(SOURCE)
        self._ends.clear()
        yield from self._until(lambda: self._health(GROUP) == (DOWN, True))
        yield Step(
            "7. The incident: the group is Down, as its source topic is missing.",
            "who is behind, since when and why, and below who needs what it writes",
            "pipelines",
        )
        yield from self._for(30)
        yield Step(f"8. The topic {SOURCE} is there again.", "the incident ends when offsets advance", group)
        self._client.create_topic(SOURCE, _PARTITIONS)
        self._open_producer()
        self._enrich.positions.clear()
        self._rate = _RATE
        yield from self._until(lambda: self._is_well(GROUP))
        yield Step("9. The incident is over.", "verdicts and incidents over time", f"{group}#history")
        yield from self._for(10)
        self._say("\nThe story is over. All goes on until Ctrl-C.")
        while not self._stop.is_set():
            yield from self._for(60)

    @property
    def _waiting(self) -> int:
        return sum(end - self._enrich.positions[one] for one, end in self._ends.items())

    def _leave(self, pod: _Pod) -> None:
        self._enrich.pods.remove(pod)
        with suppress(GroupError):
            pod.member.leave()

    def _members(self) -> list[Any]:
        return list(self._client.describe([GROUP])[0]["members"])

    def _is_well(self, group_id: str) -> bool:
        verdict, has_incident = self._health(group_id)
        return verdict in GOOD and not has_incident

    def _health(self, group_id: str) -> tuple[str | None, bool]:
        """Return the verdict, and whether an incident is open."""
        where = of_group(self._cluster, group_id)
        try:
            reader = WarehouseReader(self._warehouse)  # of the tables as they are now
            rows = list(reader.rows(f"SELECT verdict, incident_id FROM group_health WHERE {where}"))  # noqa: S608 - quoted
        except WarehouseError:  # no table yet
            return None, False
        return (rows[0]["verdict"], rows[0]["incident_id"] is not None) if rows else (None, False)

    # Time goes on

    def _for(self, seconds: float) -> Iterator[None]:
        end = time.monotonic() + seconds / self._pace
        while time.monotonic() < end and not self._stop.is_set():
            self._tick()
            yield None

    def _until(self, is_so: Callable[[], bool]) -> Iterator[None]:
        """Go on until something is so, or for five minutes: on a busy machine the job takes its time."""
        end = time.monotonic() + _SEEN_SECONDS
        while time.monotonic() < end and not self._stop.is_set() and not is_so():
            self._tick()
            yield None

    def _tick(self) -> None:
        """Let half a second pass: records are written and processed."""
        self._write(SOURCE, {one: round(self._rate * _TICK_SECONDS / _PARTITIONS) for one in range(_PARTITIONS)})
        at_most = round(_CAPACITY * _TICK_SECONDS / _PARTITIONS)
        processed = self._enrich.tick(self._ends, at_most)
        self._write(RESULT, processed)
        self._totals.tick(self._results, 10 * at_most)
        self._stop.wait(_TICK_SECONDS)

    def _write(self, topic: str, numbers: dict[int, int]) -> None:
        ends = self._ends if topic == SOURCE else self._results
        sent = []
        for partition, number in numbers.items():
            for _ in range(number):
                assert self._producer  # noqa: S101 - of `_prepare`
                sent.append((partition, self._producer.send(topic, value=b"order", partition=partition)))
        for partition, future in sent:
            future.get(30)
            ends[partition] += 1


def _writes(of: Fields, topic: str) -> Fields:
    """Return the description of a topology whose processor writes a topic, too."""
    described = build_description(of)
    nodes = described["subtopologies"][0]["nodes"]
    sink = {**nodes[-1], "name": "KSTREAM-SINK-0", "node_type": 3, "sink_topic": topic, "stores": [], "successors": []}
    nodes[-1]["successors"] = [sink["name"]]
    nodes.append(sink)
    return described

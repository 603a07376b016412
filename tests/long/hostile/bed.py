"""A real broker, the whole job as a process, honest groups, and probes: how soon their rows and their alerts are there.

Everything that a probe needs is there before an attack begins, as at a platform whose tenants come one after the other.
A probe lets one honest group get a second member, until its row says so, and lets another one get stuck, as the topic
that it reads is gone, until the webhook has its alert.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
from kafka.errors import KafkaError

from bench.memory import proportional_by_process
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from streaming_app.sandbox.process import HOST, Process, Startable, reserve_port
from streaming_app.tables.checkpoint_offsets import read_checkpoint_offsets
from streaming_app.tables.reader import WarehouseReader, quote
from tests.long.faults.job import JobProcess, StartOptions
from tests.support.job_runner import STREAMS_GROUPS
from tests.support.receivers import HttpReceiver
from tests.support.waiting import MINUTES, await_topics, wait_until

TOPIC, CLUSTER = "__consumer_offsets", "default"
STUCK_RULE, STUCK_FOR_SECONDS = "StreamsGroupDown", 2.0
PROBE_SECONDS = 120.0
_SAMPLE_SECONDS = 0.5


class Probe(NamedTuple):
    """Seconds until an honest group's row, and until an honest alert with its `for`; None: not in two minutes."""

    row: float | None
    alert: float | None


class Pair(NamedTuple):
    """What one probe needs: a member of a group that will get a second one, and one of a group that will be stuck."""

    growing: SimulatedMember
    stuck: SimulatedMember
    stuck_topic: str


class Bed(Startable):
    """Start it, or use it as a context manager. `probe` works as often as there are `probes`."""

    def __init__(self, directory: Path, *, probes: int, settings: dict[str, Any] | None = None) -> None:
        """Prepare; `settings` are of the job's configuration."""
        self.directory = directory
        self.warehouse = directory / "warehouse"
        self.ending = threading.Event()
        """Set when the attack is to end."""
        self._stack = ExitStack()
        self._settings = settings or {}
        self._pairs: list[Pair] = []
        self.honest: list[str] = []
        """The ids of the honest groups."""
        self._probes = probes

    def start(self) -> None:
        """Start broker, groups and job; return once the job has read everything."""
        try:
            self.broker = self._stack.enter_context(LocalBroker(self.directory / "broker"))
            self.client = self._stack.enter_context(StreamsGroupClient(self.server))
            self.receiver = self._stack.enter_context(HttpReceiver())
            self._add_honest_groups()
            self.urls = {name: _free_address() for name in ("metrics", "page")}
            self.job = JobProcess(self.server, self.warehouse, self.directory / "job.log")
            self._stack.callback(self.job.close)
            self.job.start(StartOptions(("--config", str(self._write_config()))))
            self._await_caught_up()
            self._start_page()
        except BaseException:
            self.stop()
            raise

    def _start_page(self) -> None:
        python, option, program = STREAMS_GROUPS
        command = [python, option, program, "web", "--warehouse", self.warehouse, "--listen", self.urls["page"]]
        self._stack.callback(Process(command, self.directory / "page.log").stop)

        def answers() -> bool:
            with suppress(urllib3.exceptions.HTTPError):
                return self._get("page", "/").status == HTTPStatus.OK
            return False

        if not wait_until(answers):
            raise TimeoutError("the page does not answer")

    def _await_caught_up(self) -> None:
        if not wait_until(self.is_caught_up):
            raise TimeoutError(f"the job has not caught up: {self.job.output[-2000:]}")

    def stop(self) -> None:
        """Stop everything."""
        self.ending.set()
        self._stack.close()

    def restart_job(self, **settings: Any) -> None:
        """Stop the job, and start it with these settings of its configuration instead of those that it had."""
        self._settings = settings
        assert self.job.terminate() is None
        self.job.start(StartOptions(("--config", str(self._write_config()))))
        self._await_caught_up()

    @property
    def server(self) -> str:
        """Where the broker is."""
        return self.broker.bootstrap_server

    @contextmanager
    def attacker(self) -> Iterator[StreamsGroupClient]:
        """Give a connection of its own to an attack."""
        with StreamsGroupClient(self.server) as client:
            yield client

    @property
    def is_alive(self) -> bool:
        """Whether the job still runs, without having been started again."""
        return self.job.pid is not None

    def probe(self) -> Probe:
        """Let one honest group grow and another one get stuck; return how long it took until both were known."""
        pair = self._pairs.pop()
        with suppress(KafkaError):  # the topic is gone before all of its partitions are
            self.client.delete_topic(pair.stuck_topic)
        if not wait_until(lambda: self._is_stuck(pair.stuck), PROBE_SECONDS, interval=0.1):
            raise TimeoutError("the broker does not find that a topic is missing")
        began = time.monotonic()
        SimulatedMember(self.client, pair.growing.group_id, pair.growing.topology).join()
        checks: dict[str, Callable[[], bool]] = {
            "row": lambda: self._members(pair.growing.group_id) == 2,
            "alert": lambda: self.was_notified(pair.stuck.group_id),
        }
        seen: dict[str, float] = {}

        def is_over() -> bool:
            for name, holds in checks.items():
                if name not in seen and holds():
                    seen[name] = time.monotonic() - began
            return len(seen) == len(checks) or not self.is_alive

        wait_until(is_over, PROBE_SECONDS, interval=0.1)
        return Probe(seen.get("row"), seen.get("alert"))

    def keep_members(self) -> None:
        """Let the honest members of later probes send heartbeats: their sessions end after 45 s."""
        for pair in self._pairs:
            pair.growing.step()
            pair.stuck.step()

    def is_caught_up(self) -> bool:
        """Return whether the job has processed what is in the topic now."""
        try:
            done = read_checkpoint_offsets(self.warehouse, CLUSTER)
            return done is not None and not done.offsets_behind(self.client.end_offsets(TOPIC))
        except Exception:  # noqa: BLE001 - the checkpoint may be written right now
            return False

    @contextmanager
    def memory(self) -> Iterator[Counter[str]]:
        """Give the most bytes since the block began, in `sum` and of each kind of process of the job by itself."""
        most: Counter[str] = Counter()
        end = threading.Event()

        def sample() -> None:
            while not end.wait(_SAMPLE_SECONDS):  # noqa: WAIT002 - how often it looks
                if pid := self.job.pid:
                    now = proportional_by_process(pid)
                    now["sum"] = sum(now.values())
                    most.update({name: size - most[name] for name, size in now.items() if size > most[name]})

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield most
        finally:
            end.set()
            thread.join()

    @contextmanager
    def viewer(self) -> Iterator[dict[str, float]]:
        """Give the most seconds that the page and the metrics took to answer since the block began; a minute: never."""
        most, end = dict.fromkeys(("page", "metrics"), 0.0), threading.Event()

        def look(name: str, path: str) -> None:
            while not end.wait(1):  # noqa: WAIT002 - how often it looks
                began = time.monotonic()
                try:
                    is_answered = self._get(name, path).status == HTTPStatus.OK
                except urllib3.exceptions.HTTPError:
                    is_answered = False
                most[name] = max(most[name], time.monotonic() - began if is_answered else 60.0)

        looks = ("page", "/"), ("metrics", "/metrics")
        threads = [threading.Thread(target=look, args=one, daemon=True) for one in looks]
        for thread in threads:
            thread.start()
        try:
            yield most
        finally:
            end.set()
            for thread in threads:
                thread.join()

    def _get(self, name: str, path: str) -> urllib3.BaseHTTPResponse:
        return urllib3.request("GET", f"http://{self.urls[name]}{path}", timeout=MINUTES, retries=False)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query of the warehouse."""
        rows: list[dict[str, Any]] = WarehouseReader(self.warehouse).query(sql).to_pylist()
        return rows

    def without_series(self) -> list[str]:
        """Return the honest groups that have no series of their own in `/metrics`."""
        text = self._get("metrics", "/metrics").data.decode()
        return [one for one in self.honest if f'group="{one}"' not in text]

    def was_notified(self, group_id: str) -> bool:
        """Return whether the webhook has an alert of the honest incident's rule about this group."""
        bodies = [one.body for one in list(self.receiver.requests)]
        return any(json.loads(body)["data"].get("group_id") == group_id for body in bodies if group_id.encode() in body)

    def _is_stuck(self, member: SimulatedMember) -> bool:
        member.step()
        return any(name == "MISSING_SOURCE_TOPICS" for name, _ in member.statuses)

    def _members(self, group_id: str) -> int | None:
        try:
            rows = self.query(f"SELECT member_count FROM groups WHERE group_id = {quote(group_id)}")
        except Exception:  # noqa: BLE001 - the table may be written right now
            return None
        return rows[0]["member_count"] if rows else None

    def _add_honest_groups(self) -> None:
        self.client.create_topic("orders-in", 2)
        members = []
        for number in range(self._probes):
            stuck_topic = f"payments-{number}"
            self.client.create_topic(stuck_topic, 2)
            pair = Pair(
                self._join(f"orders-{number}", "orders-in"), self._join(f"payments-{number}", stuck_topic), stuck_topic
            )
            members += pair[:2]
            self.honest += [one.group_id for one in pair[:2]]
            self._pairs.append(pair)
        settle(members)

    def _join(self, group_id: str, topic: str) -> SimulatedMember:
        described = topology(subtopology("0", source_topics=[topic]))
        await_topics(self.client, f"{group_id}-warm", described)
        member = SimulatedMember(self.client, group_id, described)
        member.join()
        return member

    def _write_config(self) -> Path:
        values = {
            "bootstrap_server": self.server,
            "warehouse": str(self.warehouse),
            "alerts": {"rules": {STUCK_RULE: {"not_ready_after": f"{STUCK_FOR_SECONDS:.0f}s"}}},
            "sinks": [{"type": "webhook", "url": self.receiver.url}],
            "metrics": {"listen": self.urls["metrics"]},
        }
        file = self.directory / "job.yaml"
        file.write_text(json.dumps({**values, **self._settings}))  # YAML holds JSON
        return file


def _free_address() -> str:
    with reserve_port() as free:
        return f"{HOST}:{free.getsockname()[1]}"

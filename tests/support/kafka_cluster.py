"""Three brokers and a controller from jars, for tests with lagging replicas, elections, and truncated logs."""

import signal
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay

from streaming_app.jvm.jars import KAFKA_VERSION
from streaming_app.kafka.connection import Admin
from streaming_app.kafka.topic_reader import describe_topics
from streaming_app.sandbox.broker import LocalBroker
from streaming_app.sandbox.child_process import HOST, Process, Startable, reserve_port
from streaming_app.sandbox.member import new_id
from tests.support.encoded import Pair
from tests.support.processes import send_signal
from tests.support.waiting import MINUTES, wait_until

CONTROLLER_ID = 100
_ELECTION_SECONDS = MINUTES
_PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "true",
    "auto.leader.rebalance.enable": "false",  # leaders move only when a test moves them
    # A stopped replica leaves the ISR after its session timeout, a paused one after this time.
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "100",
}


class ClusterNode(LocalBroker):
    """A broker of a cluster; it is ready once its controller lets it lead partitions."""

    def __init__(self, directory: Path, node_id: int, *, properties: Mapping[str, str], **settings: Any) -> None:
        super().__init__(directory, properties={**properties, "node.id": str(node_id)}, **settings)
        self.node_id = node_id

    def send(self, number: int) -> None:
        assert self.pid is not None
        send_signal(number, [self.pid])

    def _wait_until_ready(self, process: Process) -> None:
        super()._wait_until_ready(process)
        with _admin(self.bootstrap_server) as admin:
            assert wait_until(lambda: self.node_id in _node_ids(admin), _ELECTION_SECONDS), self.log_file


class _Controller(ClusterNode):
    def _wait_until_ready(self, process: Process) -> None:
        """Do not wait: clients cannot ask a controller as they ask brokers, and the brokers wait for it."""


class LocalCluster(Startable):
    """Brokers 1 to 3 and their controller. All topics have three replicas; elections are unclean."""

    def __init__(
        self, directory: Path, *, properties: Mapping[str, str] | None = None, version: str = KAFKA_VERSION
    ) -> None:
        """Prepare; `properties` are configurations of all brokers. Nothing runs before `start()`."""
        self.directory = directory
        with ExitStack() as sockets:  # reserve all ports at once, so that they differ
            ports = [sockets.enter_context(reserve_port()).getsockname()[1] for _ in range(4)]
        self.controller, *brokers = _make_nodes(directory, ports, {**_PROPERTIES, **(properties or {})}, version)
        self.brokers: dict[int, ClusterNode] = {one.node_id: one for one in brokers}
        self._paused: set[int] = set()

    @property
    def bootstrap_server(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(one.bootstrap_server for one in self.brokers.values())

    def start(self) -> None:
        """Start the nodes that do not run, all at once: with enough cores it takes about as long as one broker."""
        self.controller.start()
        self.start_brokers(self.brokers)

    @property
    def pid(self) -> int | None:
        """The process id of the first broker that runs; None if none does."""
        return next((one.pid for one in self.brokers.values() if one.pid is not None), None)

    def stop(self) -> None:
        """Kill all nodes: nobody reads the data again."""
        for one in (*self.brokers.values(), self.controller):
            one.kill()

    def start_brokers(self, node_ids: Iterable[int]) -> None:
        """Start these brokers, and return when each may lead partitions."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node_id: self.brokers[node_id].start(), node_ids))

    def pause(self, node_id: int) -> None:
        """Pause the process: its connections stay open, but it does not answer."""
        self._paused.add(node_id)
        self._node(node_id).send(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._paused.discard(node_id)
        self._node(node_id).send(signal.SIGCONT)

    def _node(self, node_id: int) -> ClusterNode:
        return self.controller if node_id == CONTROLLER_ID else self.brokers[node_id]

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the leader; -1 if there is none."""
        return self.leaders(topic).get(partition, (-1, -1))[0]

    def leader_epoch(self, topic: str, partition: int) -> int:
        return self.leaders(topic).get(partition, (-1, -1))[1]

    def leaders(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the leader and the leader epoch of each partition; leader -1: none."""
        found = self._describe([topic])[0]["partitions"]
        return {one["partition_index"]: (int(one["leader_id"]), int(one["leader_epoch"])) for one in found}

    def is_in_sync(self, node_id: int, topic: str, partition: int) -> bool:
        found = self._describe([topic])[0]["partitions"]
        return any(one["partition_index"] == partition and node_id in one["isr_nodes"] for one in found)

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic in Kafka's text form."""
        with _admin(self.running_server) as admin:
            return describe_topics(admin, [topic])[topic].topic_id or ""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and return once no broker has it."""
        with _admin(self.running_server) as admin:
            admin.delete_topics([topic])
        assert wait_until(lambda: self.leader(topic, 0) < 0, _ELECTION_SECONDS)

    def create_topic(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic with three replicas, of which the first leads; return once it has a leader."""
        assignment = {partition: list(self.brokers) for partition in range(partitions)}
        with _admin(self.running_server) as admin:
            admin.create_topics({topic: {"assignments": assignment, "configs": configs}})
        assert wait_until(lambda: all(self.leader(topic, one) >= 0 for one in range(partitions)), _ELECTION_SECONDS)

    def append(self, topic: str, *records: Pair, partition: int = 0) -> int:
        """Append records to a partition with a new producer; return the offset of the last one.

        A producer that survives an unclean election would continue with sequence numbers that the new leader lacks.
        """
        with KafkaProducer(
            bootstrap_servers=self.running_server.split(","), enable_idempotence=False, reconnect_backoff_max_ms=200
        ) as producer:
            sent = [producer.send(topic, key=key, value=value, partition=partition) for key, value in records]
            return max(int(one.get(MINUTES).offset) for one in sent)

    def delete_records(self, topic: str, before: int) -> None:
        """Delete the records of partition 0 before an offset; the topic's `cleanup.policy` must allow it."""
        with _admin(self.running_server) as admin:
            admin.delete_records({TopicPartition(topic, 0): before})

    def cut(
        self,
        topic: str,
        partition: int,
        *,
        lost: Callable[[], object],
        kept: Callable[[], object] | None = None,
        paused: bool = False,
        leaders_paused: bool = False,
    ) -> int:
        """Let an unclean election remove the records that `lost` writes; return the new leader.

        One replica is down while `lost` writes. Then the others are killed, and that replica is elected although it
        lacks these records. `kept` then writes records at their offsets. The others come back and truncate their logs.
        With `paused` all of them are paused instead of stopped or killed; clients that ask a paused broker may wait for
        30 s. With `leaders_paused` only the others are paused, so that `lost` can read without such waits.
        """
        leaders_paused = leaders_paused or paused
        behind = next(one for one in sorted(self.brokers, reverse=True) if one != self.leader(topic, partition))
        others = [one for one in self.brokers if one != behind]
        if paused:
            self.pause(behind)
        else:
            self.brokers[behind].stop()
        assert wait_until(lambda: not self.is_in_sync(behind, topic, partition), _ELECTION_SECONDS)
        lost()
        for one in others:
            if leaders_paused:
                self.pause(one)
            else:
                self.brokers[one].kill()
        if paused:
            self.resume(behind)
        else:
            self.brokers[behind].start()
        assert wait_until(lambda: self.leader(topic, partition) == behind, _ELECTION_SECONDS)
        if kept:
            kept()
        if leaders_paused:
            for one in others:
                self.resume(one)
        else:
            self.start_brokers(others)
        self.await_all_in_sync(topic)
        return behind

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make another replica the preferred leader, and elect it. No broker goes down."""
        key = TopicPartition(topic, partition)
        with _admin(self.running_server) as admin:
            admin.alter_partition_reassignments({key: [to, *(one for one in self.brokers if one != to)]})
            assert wait_until(lambda: not admin.list_partition_reassignments(), _ELECTION_SECONDS)
            admin.elect_leaders(0, {topic: [partition]}, raise_errors=False)
        assert wait_until(lambda: self.leader(topic, partition) == to, _ELECTION_SECONDS)

    def await_all_in_sync(self, *topics: str) -> None:

        def all_are() -> bool:
            described = self._describe(topics)
            found = [one for topic in described for one in topic["partitions"]]
            return bool(found) and all(set(one["isr_nodes"]) == set(one["replica_nodes"]) for one in found)

        assert wait_until(all_are, 2 * _ELECTION_SECONDS, interval=0.3), self._describe(topics)

    def finalize_features(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Raise each feature to the highest level that all nodes support; return the levels before and after."""
        with _admin(self.running_server) as admin:

            def finalized() -> dict[str, int]:
                return {
                    name: one["finalized"][1] for name, one in admin.describe_features().items() if "finalized" in one
                }

            before = finalized()
            newest = {name: admin.describe_features()[name]["supported"][1] for name in before}
            admin.update_features({name: level for name, level in newest.items() if level > before[name]})
            assert wait_until(lambda: finalized() == newest, _ELECTION_SECONDS), (finalized(), newest)
            return before, newest

    def elect(self, topic: str, partition: int) -> None:
        """Restart the leader: another replica becomes the leader, and no record is lost."""
        leader = self.brokers[self.leader(topic, partition)]
        leader.stop()
        leader.start()
        self.await_all_in_sync(topic)

    @property
    def running_server(self) -> str:
        """The addresses of the brokers that answer."""
        running = (one for one in self.brokers.values() if one.pid is not None and one.node_id not in self._paused)
        return ",".join(one.bootstrap_server for one in running)

    def _describe(self, topics: Iterable[str]) -> list[dict[str, Any]]:
        # A client may ask a paused or killed broker, which does not answer.
        for attempt in Retrying(retry=retry_if_exception_type(KafkaError), stop=stop_after_delay(_ELECTION_SECONDS)):
            with attempt, _admin(self.running_server) as admin:
                described: list[dict[str, Any]] = admin.describe_topics(list(topics))
        return described


def _make_nodes(directory: Path, ports: list[int], properties: Mapping[str, str], version: str) -> list[ClusterNode]:
    """Return the controller, which has the first port, and the brokers."""
    cluster_id = new_id()
    controller_at = f"{HOST}:{ports[0]}"
    shared = {**properties, "controller.quorum.voters": f"{CONTROLLER_ID}@{controller_at}"}
    listeners = f"CONTROLLER://{controller_at}"
    own = {"process.roles": "controller", "listeners": listeners, "advertised.listeners": listeners}
    settings: dict[str, Any] = {"new_cluster_id": cluster_id, "version": version}
    nodes: list[ClusterNode] = [
        _Controller(directory / "controller", CONTROLLER_ID, properties={**shared, **own}, **settings)
    ]
    for node_id, port in enumerate(ports[1:], start=1):
        own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{HOST}:{port}"}
        name = directory / f"broker-{node_id}"
        nodes.append(ClusterNode(name, node_id, port=port, properties={**shared, **own}, **settings))
    return nodes


def _admin(server: str) -> Admin:
    return Admin(bootstrap_servers=server.split(","), request_timeout_ms=2000, reconnect_backoff_max_ms=200)


def _node_ids(admin: Admin) -> set[int]:
    try:
        return {one["broker_id"] for one in admin.describe_cluster()["brokers"]}
    except KafkaError:
        return set()

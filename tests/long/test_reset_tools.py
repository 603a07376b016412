"""What Kafka's own tools do to a streams group when they reset, delete or list it, as docs/facts.md says."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from streaming_app.jvm.jars import KAFKA_EXCLUSIONS, KAFKA_VERSION, kafka_coordinates, resolve
from streaming_app.jvm.java import find_java
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.sandbox.member import SimulatedMember, internal_topic, settle, subtopology, topology
from tests.support.jvm_options import FAST
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

_RESET = "org.apache.kafka.tools.StreamsResetter"
_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
# The tools bring Connect with its servers, which neither of the two needs.
_CONNECT = (
    "jakarta.ws.rs:*",
    "org.apache.kafka:connect-file",
    "org.apache.kafka:connect-mirror",
    "org.apache.kafka:connect-mirror-client",
    "org.apache.kafka:connect-runtime",
    "org.eclipse.jetty.ee10:*",
    "org.eclipse.jetty:*",
    "org.glassfish.jersey.containers:*",
    "org.glassfish.jersey.core:*",
    "org.glassfish.jersey.inject:*",
)


class Application:
    """A streams group with a source topic, a repartition topic and a changelog, and one member."""

    def __init__(self, client: StreamsGroupClient, group_id: str) -> None:
        self.group_id, self.source = group_id, f"{group_id}-orders"
        self.internal = {f"{group_id}-by-key-repartition", f"{group_id}-store-changelog"}
        self._client = client
        repartition, changelog = sorted(self.internal)
        client.create_topic(self.source, 2)
        self.member = SimulatedMember(
            client,
            group_id,
            topology(
                subtopology("0", source_topics=[self.source], repartition_sink_topics=[repartition]),
                subtopology(
                    "1",
                    repartition_source_topics=[internal_topic(repartition, 2)],
                    state_changelog_topics=[internal_topic(changelog)],
                ),
            ),
        )
        self.member.join()
        settle([self.member])
        offsets = {(self.source, number): 0 for number in range(2)}
        client.commit_offsets(group_id, offsets, self.member.member_id, self.member.epoch)

    def internal_topics(self) -> set[str]:
        return self.internal & set(self._client.admin.list_topics())

    def state(self) -> str:
        (group,) = self._client.describe([self.group_id])
        return str(group["group_state"])


@pytest.fixture(scope="module")
def class_path() -> str:
    coordinates = (f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}", *kafka_coordinates())
    return ":".join(map(str, resolve(*coordinates, exclude=(*KAFKA_EXCLUSIONS, *_CONNECT), progress=print)))


@pytest.fixture
def tool(broker: Broker, class_path: str) -> Callable[..., str]:
    def run(program: str, *arguments: str) -> str:
        command = [find_java(), *FAST.split(), "-cp", class_path, program]
        server = ("--bootstrap-server", broker.bootstrap_server)
        done = subprocess.run([*command, *server, *arguments], check=False, capture_output=True, text=True)
        return done.stdout + done.stderr

    return run


@pytest.fixture
def application(client: StreamsGroupClient, group_id: str) -> Application:
    return Application(client, group_id)


def test_the_reset_of_the_classic_protocol_deletes_internal_topics_of_a_running_group(
    application: Application, tool: Callable[..., str]
) -> None:
    output = tool(_RESET, "--application-id", application.group_id, "--input-topics", application.source, "--force")
    assert "CommitFailedException" in output
    assert application.internal_topics() == application.internal
    assert "Deleting inferred internal topics" in tool(_RESET, "--application-id", application.group_id)
    assert application.state() == "Stable"
    assert wait_until(lambda: application.internal_topics() != application.internal)


def test_what_runs_is_neither_reset_nor_deleted_by_the_tool_for_streams_groups(
    application: Application, tool: Callable[..., str]
) -> None:
    group = ("--group", application.group_id)
    everything = ("--all-input-topics", "--to-earliest", "--delete-all-internal-topics", "--execute")
    assert "can only be reset if the group" in tool(_GROUPS, "--reset-offsets", *group, *everything)
    assert "is not EMPTY" in tool(_GROUPS, "--delete", *group, "--delete-all-internal-topics")
    assert application.internal_topics() == application.internal


def test_offsets_are_deleted_while_no_member_runs(
    client: StreamsGroupClient, application: Application, tool: Callable[..., str]
) -> None:
    def committed() -> bool:
        found = client.admin.list_group_offsets({application.group_id: None})[application.group_id]
        return any(one.offset >= 0 for one in found.values())

    arguments = ("--delete-offsets", "--group", application.group_id, "--all-input-topics")
    assert "SUBSCRIBED" in tool(_GROUPS, *arguments).upper()
    assert committed()
    application.member.leave()
    assert "Successful" in tool(_GROUPS, *arguments)
    assert not committed()
    assert application.internal_topics() == application.internal
    assert application.state() == "Empty"  # the next sweep deletes a group that has no offsets


def test_internal_topics_stay_unless_an_option_names_them(
    client: StreamsGroupClient, unique: Callable[[str], str], tool: Callable[..., str]
) -> None:
    reset, deleted = Application(client, unique("reset")), Application(client, unique("deleted"))
    for one in (reset, deleted):
        one.member.leave()
    everything = ("--reset-offsets", "--group", reset.group_id, "--all-input-topics", "--to-earliest")
    assert "takes [execute]" in tool(_GROUPS, *everything, "--delete-all-internal-topics", "--dry-run")
    assert "NEW-OFFSET" in tool(_GROUPS, *everything, "--dry-run")
    tool(_GROUPS, *everything, "--execute")
    assert "was successful" in tool(_GROUPS, "--delete", "--group", deleted.group_id)
    assert reset.internal_topics() == reset.internal
    assert deleted.internal_topics() == deleted.internal
    tool(_GROUPS, *everything, "--delete-all-internal-topics", "--execute")
    assert wait_until(lambda: not reset.internal_topics())


def test_the_tool_spells_notready_in_one_word_and_finds_no_group_by_it(
    client: StreamsGroupClient, group_id: str, tool: Callable[..., str]
) -> None:
    SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[f"{group_id}-missing"]))).join()
    assert [line.split()[1] for line in tool(_GROUPS, "--list", "--state").splitlines() if group_id in line] == [
        "NotReady"
    ]
    assert "Invalid state list 'Not Ready'" in tool(_GROUPS, "--list", "--state", "Not Ready")  # as KIP-1071 has it
    listed = tool(_GROUPS, "--list", "--state", "NotReady").split()
    assert listed == ["GROUP", "STATE"]  # brokers look for `not_ready`

"""A streams group with one member that stays, for checks that take longer than a session of Kafka's default, 45 s."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology

READY_SECONDS = 600
"""The longest time until a job that has started, and what it needs, is ready."""
_HEARTBEAT_SECONDS = 5.0


@contextmanager
def live_group(bootstrap_server: str, group_id: str) -> Iterator[None]:
    """Create a topic and a Stable group that reads it; its member sends heartbeats until the end of the block.

    Raises at the end what a heartbeat raised.
    """
    stop = Event()
    with StreamsGroupClient(bootstrap_server) as client, ThreadPoolExecutor(1) as executor:
        client.create_topic("orders", 2)
        member = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=["orders"])))
        member.join()
        settle([member])
        heartbeats = executor.submit(_send_heartbeats, member, stop)
        try:
            yield
        finally:
            stop.set()
        heartbeats.result()


def _send_heartbeats(member: SimulatedMember, stop: Event) -> None:
    while not stop.wait(_HEARTBEAT_SECONDS):  # noqa: WAIT002 - the interval of heartbeats
        member.step()


def first_two_columns(printed: str) -> list[list[str]]:
    """Return the groups and states of what `streams-groups list --state` printed."""
    return [line.split()[:2] for line in printed.splitlines()]

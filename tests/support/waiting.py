"""Waiting for conditions that can only be polled, and the names of running threads."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, settle

MINUTES = 300.0
"""Seconds until a test gives up: the wait usually takes a moment, but longer on a busy machine."""


def wait_until(condition: Callable[[], bool], seconds: float = MINUTES, *, interval: float = 0.05) -> bool:
    """Poll at this interval until the condition is true or the time is up; return whether it was.

    It is not asked again after it was true: another broker may not have reached that state yet.
    """
    deadline = time.monotonic() + seconds
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(interval)  # noqa: TID251 - the one place that polls
    return is_true


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def await_topics(client: StreamsGroupClient, group_id: str, described: Mapping[str, Any]) -> None:
    """Return once the coordinator knows the topics. A deleted group with this id remains in the log.

    A coordinator gets new metadata a moment after the broker has answered that a topic exists. A group that is created
    in between is NotReady first, and has one group epoch more.
    """
    member = SimulatedMember(client, group_id, described)
    member.join()
    settle([member])
    member.leave()
    client.delete_group(group_id)


def delete_topic(client: StreamsGroupClient, name: str) -> None:
    """Delete a topic, and return once the brokers no longer know it."""
    client.delete_topics([name])
    assert wait_until(lambda: not client.end_offsets(name))

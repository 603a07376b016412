"""Waiting for a condition that can only be polled, and which threads run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, settle

MINUTES = 300.0
"""Seconds until a test gives up: what it waits for takes a moment, also on a machine that does much else."""


def wait_until(condition: Callable[[], bool], seconds: float = MINUTES, *, interval: float = 0.05) -> bool:
    """Poll at this interval until the condition is true or the time is up; return whether it was.

    It is not asked again once it was true: what one broker has, the next one may not have yet.
    """
    deadline = time.monotonic() + seconds
    while not (is_true := condition()) and time.monotonic() < deadline:
        time.sleep(interval)  # noqa: TID251 - the one place that polls
    return is_true


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def await_topics(client: StreamsGroupClient, group_id: str, described: Mapping[str, Any]) -> None:
    """Return once the coordinator of the group knows the topics; it leaves a deleted group in the log.

    A coordinator gets the new metadata a moment after the broker answers that a topic exists. A group that is created
    in between is NotReady first, and has a group epoch more.
    """
    member = SimulatedMember(client, group_id, described)
    member.join()
    settle([member])
    member.leave()
    client.delete_group(group_id)

"""What a tenant can send to a 4.4.0 broker: requests that are valid, but larger, odder or more than usual."""

from __future__ import annotations

from typing import Any

from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology


def join(client: StreamsGroupClient, group_id: str, *, topic: str = "orders-in", **member: Any) -> SimulatedMember:
    """Let a member join a group that reads this topic, which need not exist."""
    joined = SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[topic])), **member)
    joined.join()
    return joined

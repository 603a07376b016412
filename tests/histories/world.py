"""What the job that watches a cluster can learn of what happens there: the log, and the answers of brokers.

A relation (`tests/relations`) replays a history with another world: the log compacted, parts hidden, other answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from streaming_app.groups.task_copies import TaskCopy
from streaming_app.lag.open_transactions import Transactions
from tests.histories.clients import Appended
from tests.histories.history import History
from tests.histories.simulation import Simulation
from tests.histories.traffic import Seen

_USUAL_TRANSACTIONS = Transactions(longest=900.0)


@dataclass(frozen=True)
class World:
    """All that the job can learn. Each sequence is in the order of time; times are seconds since the start."""

    log: Sequence[Appended]
    """The records of groups, in the order in which they were written."""
    lag: Sequence[Seen]
    """Committed offsets and ends of logs, one for each group and pass."""
    copies: Sequence[tuple[float, str, list[TaskCopy], int]]
    """When the brokers were asked for the copies of a group's tasks, what they said, and its standby replicas."""
    topic_changes: Sequence[tuple[float, Mapping[str, int]]]
    """The partitions of each topic, from a time on."""
    plugin_configs: Sequence[tuple[float, bool]]
    """Whether the configuration of the brokers names a plugin for descriptions, from a time on."""
    incident_ends: Sequence[tuple[float, str]]
    """When a person ended all open alerts, and why."""
    retention: Mapping[str, float]
    """Topic -> seconds for which it keeps records."""
    job_downtimes: Sequence[tuple[float, float]] = ()
    """From when to when the job does not run."""
    transactions: Transactions = _USUAL_TRANSACTIONS
    """The open transactions, and how long one may be open: Kafka's default."""

    @classmethod
    def of(cls, history: History) -> World:
        """Simulate what happens in a history; of the newest one it is known."""
        made_of = history.operations, history.seconds, history.topics, history.protocol
        if _NEWEST and _NEWEST[0][0] is history.operations and _NEWEST[0][1:] == made_of[1:]:
            return _NEWEST[1]
        one = Simulation(dict(history.topics), history.protocol)
        one.run(history.operations, history.seconds)
        log = sorted(one.log, key=attrgetter("at"))
        answers = one.lag, one.copies, one.topic_changes, one.plugin_configs, one.incident_ends
        found = cls(log, *answers, one.retention())
        _NEWEST[:] = made_of, found
        return found


_NEWEST: list[Any] = []
"""What the newest world was made of, and this world: nobody changes a world, and a relation asks often for one."""


Transform = Callable[[World], World]

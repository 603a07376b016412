"""The model of the coordinator writes what broker 4.4.0 writes: the same records in the same order, with equal values.

The recorded log has no broker at hand; the last test asks one. Which member gets which task is up to the assignor, so
tasks are counted.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from offsets_decoder import decode
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, settle, subtopology, topology
from tests.histories.coordinator import Group, Member, Write
from tests.recorded.record import read
from tests.support.container import Broker
from tests.support.waiting import await_topics

RECORDED = Path(__file__).parents[1] / "recorded" / "4.4.0.jsonl.gz"
Shape = tuple[Any, ...]
FIELDS = {
    17: ("epoch", "validated_topology_epoch", "stored_description_topology_epoch", "failed_description_topology_epoch"),
    19: ("instance_id", "rebalance_timeout_ms", "topology_epoch"),
    20: ("assignment_epoch",),
    22: ("member_epoch", "previous_member_epoch", "state"),
}
"""Record type -> what is equal; `_values` has the others."""


def shapes(records: Iterable[Write]) -> list[Shape]:
    """Return what is compared of each record: members by the order in which they joined, tasks by number."""
    numbers: dict[str, int] = {}
    found: list[Shape] = []
    for kind, key, value in records:
        member_id = key.get("member_id")
        member = numbers.setdefault(member_id, len(numbers)) if member_id else None
        shape = (kind, member, None if value is None else _values(kind, value))
        found.append(shape)
    return _targets_in_order(found)


def _values(kind: int, value: dict[str, Any]) -> Shape:
    fields = [value[name] for name in FIELDS.get(kind, ())]
    are_zero = [value[name] == 0 for name in ("metadata_hash", "assignment_timestamp") if name in value]
    tasks = [value[name] for name in ("active_tasks", "active_tasks_pending_revocation") if name in value]
    return (*fields, *are_zero, *(sum(len(one["partitions"]) for one in of_role) for of_role in tasks))


def _targets_in_order(found: list[Shape]) -> list[Shape]:
    """Sort the targets of one assignment: the broker has no order for them."""
    result: list[Shape] = []
    for is_target, in_a_row in groupby(found, key=lambda one: one[0] == 21 and one[2] is not None):
        run = list(in_a_row)
        result += sorted(run, key=itemgetter(1)) if is_target else run
    return result


def recorded(group_id: str) -> list[Write]:
    records, _ = read(RECORDED)
    decoded = (
        decode(raw.key, raw.value) for raw in sorted(records) if raw.group_id == group_id and raw.record_type >= 17
    )
    return [(one.record_type, one.key, one.value) for one in decoded]


class ModelHarness:
    """One group of the model, and what it writes."""

    def __init__(self) -> None:
        self.written: list[Write] = []
        self.group = Group("g", ("in",), {"in": 6}, self._write)
        self.now = 0.0
        self._members = 0

    def _write(self, _group: Group, records: list[Write]) -> None:
        for kind, key, value in records:
            stamped = value
            if kind == 20 and value is not None and self.group.members:
                stamped = {**value, "assignment_timestamp": 1}
            self.written.append((kind, key, stamped))

    def join(self, instance_id: str | None = None) -> Member:
        self._members += 1
        name = f"m{self._members}"
        member = Member(name, name, "127.0.0.1", "client", instance_id)
        old = next((one for one in self.group.members.values() if instance_id and one.instance_id == instance_id), None)
        if old:
            self.group.replace(old, member)
        else:
            self.group.join(member, self.now)
        return member

    def end_initial_delay(self) -> None:
        self.now += 3
        self.group.end_initial_delay(self.now)

    def heartbeat(self, *members: Member, revoked: bool = False) -> None:
        self.now += 1
        for member in members:
            self.group.heartbeat(member, self.now, revoked=revoked)

    @property
    def shapes(self) -> list[Shape]:
        return shapes(self.written)


def _grown_and_shrunk(model: ModelHarness) -> None:
    first, second, third = model.join(), model.join(), model.join()
    model.end_initial_delay()
    model.heartbeat(first, second, third)
    model.group.remove(second)
    model.heartbeat(first, third)


def _emptied(model: ModelHarness) -> None:
    members = model.join(), model.join()
    model.end_initial_delay()
    model.heartbeat(*members)
    for one in members:
        model.group.remove(one)


def _holding_on(model: ModelHarness) -> None:
    """One member keeps its tasks, for which the one that joined waits."""
    first = model.join()
    model.end_initial_delay()
    model.heartbeat(first)
    model.now += 5
    model.join()
    model.group.heartbeat(first, model.now)


def _not_ready(model: ModelHarness) -> None:
    model.group.sources = ("in", "gone")
    model.join()
    model.end_initial_delay()


def _static(model: ModelHarness) -> None:
    """Static members leave temporarily, and one comes back as another process."""
    members = [model.join(instance_id=f"i{n}") for n in range(3)]
    model.end_initial_delay()
    model.heartbeat(*members)
    model.group.leave_temporarily(members[0])
    model.group.leave_temporarily(members[1])
    model.join(instance_id="i1")


# What a member that waits reports at its next heartbeat: its previous epoch.
NEXT_HEARTBEAT = (22, 1, (3, 3, 3, 0, 0))


@pytest.mark.parametrize(
    ("group_id", "play", "later"),
    [
        ("grown-and-shrunk", _grown_and_shrunk, []),
        ("emptied", _emptied, []),
        ("holding-on", _holding_on, [NEXT_HEARTBEAT]),
        ("not-ready", _not_ready, []),
        ("static", _static, []),
    ],
)
def test_the_model_writes_what_a_broker_has_written(
    group_id: str, play: Callable[[ModelHarness], None], later: list[Shape]
) -> None:
    model = ModelHarness()
    play(model)
    assert [*model.shapes, *later] == shapes(recorded(group_id))


def since_last_deletion(records: Iterable[Write]) -> list[Write]:
    life: list[Write] = []
    for record in records:
        life = [] if record[0] == 23 and record[2] is None else [*life, record]
    return life


@pytest.mark.broker
def test_a_broker_writes_the_same_for_a_pushed_description(
    client: StreamsGroupClient,
    broker: Broker,
    group_id: str,
    unique: Callable[[str], str],
    read_offsets: Callable[..., list[Any]],
) -> None:
    topic = unique("in")
    client.create_topic(topic, 6)
    described = topology(subtopology("0", source_topics=[topic]))
    await_topics(client, group_id, described)
    one = SimulatedMember(client, group_id, described)
    one.join()
    settle([one])
    one.push_description()

    model = ModelHarness()
    member = model.join()
    model.end_initial_delay()
    model.heartbeat(member)
    model.group.push_description("stored")

    found = (
        decode(raw.key, raw.value) for raw in read_offsets(broker.bootstrap_server, group_id) if raw.record_type >= 17
    )
    assert model.shapes == shapes(since_last_deletion((one.record_type, one.key, one.value) for one in found))

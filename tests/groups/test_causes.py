"""Why a group got a new epoch and a new assignment, as far as its records prove it, wherever batches end."""

from typing import Any

import pytest

from streaming_app.groups.row import from_row, to_row
from tests.groups.records import (
    CONFIGS,
    FIRST_JOIN,
    GROUP,
    M1,
    M2,
    NO_TASKS,
    TARGET,
    TOPOLOGY,
    at,
    current,
    fold,
    log,
    metadata,
)
from tests.groups.records import member as member_record

Step = tuple[Any, int, Any, Any]
Causes = list[tuple[str, str, str | None]]


def member(**fields: Any) -> dict[str, Any]:
    return {**member_record(), **fields}


def assigned(second: float, epoch: int, *members: dict[str, str]) -> list[Step]:
    value = {"assignment_epoch": epoch, "assignment_timestamp": 0}
    return [*((at(second), 21, key, TARGET) for key in members), (at(second), 20, GROUP, value)]


def leave(second: float, epoch: int) -> list[Step]:
    return [*((at(second), kind, M1, None) for kind in (22, 21, 19)), (at(second), 17, GROUP, metadata(epoch))]


def join(second: float, epoch: int, key: dict[str, str] = M2, **fields: Any) -> list[Step]:
    return [
        (at(second), 19, key, member(**fields)),
        (at(second), 17, GROUP, metadata(epoch)),
        (at(second), 22, key, current(1)),
    ]


def replace(second: float, epoch: int | None) -> list[Step]:
    """A static member `i1` is replaced by another one; with an epoch, its process is another one, too."""
    records = [
        *((at(second), kind, M1, None) for kind in (22, 21, 19)),
        (at(second), 19, M2, member(instance_id="i1")),
        (at(second), 21, M2, TARGET),
        (at(second), 22, M2, current(0, active=[0, 1])),
    ]
    if epoch is not None:
        records += [
            (at(second), 19, M2, member(instance_id="i1", process_id="another")),
            (at(second), 17, GROUP, metadata(epoch)),
            *assigned(second, epoch),
            (at(second), 22, M2, current(epoch, active=[0, 1])),
        ]
    return records


STATIC_JOIN = [
    (when, kind, key, member(instance_id="i1") if kind == 19 else value) for when, kind, key, value in FIRST_JOIN
]

WARMING = {**current(2, active=[0, 1]), "warmup_tasks": [{"subtopology_id": "0", "partitions": [2]}]}
TAGS = "rack.aware.assignment.tags"
ZONES = {"key": TAGS, "value": "zone,cluster"}
WITH_TAGS, WITH_ANOTHER = ([*CONFIGS, {"key": key, "value": value}] for key, value in ((TAGS, ""), ("new.one", "7")))
UNEXPLAINED = [("group_epoch", "unknown"), ("assignment_epoch", "no_task_moved")]

OPERATIONS: dict[str, tuple[list[Step], Causes]] = {
    "one member joins and one leaves before there is an assignment": (
        [*join(10, 3), *leave(11, 4), *assigned(12, 4, M2)],
        [
            ("group_epoch", "3", "member_joined"),
            ("group_epoch", "4", "member_left"),
            ("assignment_epoch", "4", "member_joined,member_left"),
        ],
    ),
    "topics change": (
        [(at(10), 17, GROUP, {**metadata(3), "metadata_hash": 8}), *assigned(10, 3, M1)],
        [("group_epoch", "3", "topics_changed"), ("assignment_epoch", "3", "topics_changed")],
    ),
    "the assignment configs change": (
        [(at(10), 17, GROUP, metadata(3, configs=[{**CONFIGS[0], "value": "1"}])), *assigned(10, 3, M1)],
        [("group_epoch", "3", "config_changed"), ("assignment_epoch", "3", "config_changed")],
    ),
    "the topology advances, as in later releases": (
        [
            (at(10), 23, GROUP, {**TOPOLOGY, "epoch": 1}),
            (at(10), 17, GROUP, metadata(3, validated=1)),
            *assigned(10, 3),
        ],
        [("group_epoch", "3", "topology_changed"), ("assignment_epoch", "3", "topology_changed")],
    ),
    "a member that stays has another rack": (
        [(at(10), 19, M1, member(rack_id="b")), (at(10), 17, GROUP, metadata(3)), *assigned(11, 3, M1)],
        [("group_epoch", "3", "rack"), ("assignment_epoch", "3", "rack")],
    ),
    "a member that stays has other tags and another process": (
        [
            (at(10), 19, M1, member(client_tags=[{"key": "zone", "value": "b" * 300}], process_id="another")),
            (at(10), 17, GROUP, metadata(3)),
            *assigned(11, 3, M1),
        ],
        [("group_epoch", "3", "tags,process"), ("assignment_epoch", "3", "tags,process")],
    ),
    "nothing in the records explains it": (
        [(at(10), 17, GROUP, metadata(3)), (at(11), 21, M1, NO_TASKS), *assigned(11, 3)],
        [("group_epoch", "3", "unknown"), ("assignment_epoch", "3", "unknown")],
    ),
    "only warm-ups move, as in later releases": (
        [
            (at(10), 17, GROUP, metadata(3)),
            (at(10), 21, M1, {**TARGET, "warmup_tasks": [{"subtopology_id": "0", "partitions": [2]}]}),
            *assigned(10, 3),
            *((at(11), 17, GROUP, metadata(4)), *assigned(12, 4)),
        ],
        [
            *(("group_epoch", "3", "warmup"), ("assignment_epoch", "3", "warmup")),
            *(("group_epoch", "4", "unknown"), ("assignment_epoch", "4", "warmup")),
        ],
    ),
    "a warm-up has caught up, and the target stays, as Kafka 4.5 refines (KAFKA-20665)": (
        [(at(10), 22, M1, WARMING), (at(10), 17, GROUP, metadata(3)), *assigned(10, 3)],
        [("group_epoch", "3", "warmup"), ("assignment_epoch", "3", "warmup")],
    ),
    "no task moves, and nothing warms up": (
        [(at(10), 17, GROUP, metadata(3)), *assigned(11, 3)],
        [("group_epoch", "3", "unknown"), ("assignment_epoch", "3", "no_task_moved")],
    ),
    "the coordinator is of a release with another assignment config, at its default (KAFKA-20896)": (
        [
            *((at(10), 17, GROUP, metadata(3, configs=WITH_TAGS)), *assigned(10, 3)),
            *((at(20), 17, GROUP, metadata(4)), *assigned(20, 4)),
        ],
        [(kind, epoch, cause) for epoch in "34" for kind, cause in UNEXPLAINED],
    ),
    "the coordinator is of a release with an assignment config that this one does not know": (
        [(at(10), 17, GROUP, metadata(3, configs=WITH_ANOTHER)), *assigned(10, 3)],
        [(kind, "3", cause) for kind, cause in UNEXPLAINED],
    ),
    "tags are configured for standbys": (
        [(at(10), 17, GROUP, metadata(3, configs=[*CONFIGS, ZONES])), *assigned(10, 3)],
        [("group_epoch", "3", "config_changed"), ("assignment_epoch", "3", "config_changed")],
    ),
    "a description is pushed": (
        [(at(10), 17, GROUP, metadata(2, stored=-2)), (at(11), 17, GROUP, metadata(2, stored=0))],
        [],
    ),
    "the group is deleted": ([(at(10), 17, GROUP, None)], []),
}  # fmt: skip


def causes(events: list[Any]) -> Causes:
    kinds = ("group_epoch", "assignment_epoch")
    return [(event.kind, event.new, event.cause) for event in events if event.kind in kinds and event.old is not None]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_new_epoch_and_a_new_assignment_say_why_where_the_records_prove_it(name: str) -> None:
    operation, expected = OPERATIONS[name]
    stable = fold(log(*FIRST_JOIN)).group
    assert causes(fold(log(*operation, first=len(FIRST_JOIN)), stable).events) == expected


def test_another_configuration_is_an_event_with_the_old_and_the_new_one() -> None:
    stable = fold(log(*FIRST_JOIN)).group
    operation, _ = OPERATIONS["the assignment configs change"]
    changed = [event for event in fold(log(*operation, first=7), stable).events if event.kind == "config_changed"]
    assert [(one.old, one.new) for one in changed] == [("num.standby.replicas=0", "num.standby.replicas=1")]
    assert not [event for event in fold(log(*FIRST_JOIN)).events if event.kind == "config_changed"]
    for name in OPERATIONS:
        if name.startswith("the coordinator is"):
            folded = fold(log(*OPERATIONS[name][0], first=7), stable)
            assert not [event for event in folded.events if event.kind == "config_changed"]


@pytest.mark.parametrize("epoch", [3, None])
def test_a_static_member_that_comes_back_under_another_id_is_replaced(epoch: int | None) -> None:
    stable = fold(log(*STATIC_JOIN)).group
    folded = fold(log(*replace(10, epoch), first=7), stable)
    expected = [("group_epoch", "3", "member_replaced"), ("assignment_epoch", "3", "member_replaced")]
    assert causes(folded.events) == (expected if epoch else [])
    assert folded.group.causes_since_assignment is None


def test_the_causes_of_an_earlier_life_of_the_group_are_not_those_of_the_next() -> None:
    waiting = fold(log(*FIRST_JOIN, (at(9), 17, GROUP, metadata(3)))).group
    assert waiting.causes_since_assignment == "unknown"
    again = [(at(60), 19, M2, member()), (at(60), 23, GROUP, TOPOLOGY), (at(60), 17, GROUP, metadata(2))]
    deleted = [(at(50), 17, GROUP, None)]
    for operations in ([*deleted, *again], again):
        folded = fold(log(*operations, *assigned(63, 2, M2), first=20), from_row(to_row("c", waiting)))
        assert causes(folded.events)[-1] == ("assignment_epoch", "2", "member_joined")


def test_what_is_kept_of_a_member_to_be_compared_is_short() -> None:
    long = member(rack_id="r" * 5_000, process_id="p" * 5_000, client_tags=[{"key": "k", "value": "v" * 5_000}])
    state = fold(log(*FIRST_JOIN, (at(10), 19, M1, long), (at(20), 19, M1, member()))).group
    kept = {change["what"]: change["old"] or "" for change in state.last_changes}
    assert {"rack", "tags", "process"} <= kept.keys()
    assert max(map(len, kept.values())) < 200

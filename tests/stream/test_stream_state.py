"""The record of state of a stream: what is written is read, whatever happens to one of its copies."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streaming_app.errors import StorageError
from streaming_app.stream.epoch_chain import EpochStart
from streaming_app.stream.slices import WHOLE
from streaming_app.stream.stream_state import BatchPlan, Slice, StateFile, StreamState, TableVersion
from streaming_app.tables.location import Location
from streaming_app.tables.own_files import OwnFiles

STATE = StreamState(
    "cluster",
    "topic",
    "id",
    50,
    partitions_grew=True,
    rows="table/default",
    history={"group_events": {0: 7}},
    history_after="2026-11-01T00:00:00+00:00",
    starting={0: -2, 1: 5},
    until={0: 9},
    ends={0: 12},
    epochs={0: (EpochStart(3, 0), EpochStart(4, 10))},
    plan=BatchPlan("w", 4, 1, (Slice((0, 5), 7), *WHOLE), (77,), (0, 3, 1)),
    tables={"groups": TableVersion("t", OwnFiles(8, 3, 4))},
)


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(Location.of(tmp_path / "default"))


def copies(directory: Path) -> list[Path]:
    return [directory / f"default.state{number}.json" for number in (0, 1)]


def stored(directory: Path) -> StreamState:
    return StateFile(Location.of(directory / "default")).read().state


def test_what_is_written_is_read(file: StateFile, tmp_path: Path) -> None:
    assert stored(tmp_path) == StreamState()
    file.replace(STATE)
    assert stored(tmp_path) == STATE
    file.write(until={}, plan=None)
    assert stored(tmp_path) == file.state
    assert [one.name for one in sorted(tmp_path.iterdir())] == [one.name for one in copies(tmp_path)]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda text: text[: len(text) // 2],
    "not UTF-8": lambda text: b"\xff" + text,
    "another number": lambda text: text.replace(b'"0": 1', b'"0": 2'),
    "another object": lambda _: b'{"format": 1}',
    "no object": lambda _: b"[1]",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_of_two_copies_the_newest_that_is_intact_counts_and_the_next_write_replaces_the_other(
    file: StateFile, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    file.replace(STATE)
    file.write(ends={0: 13})
    newer = max(copies(tmp_path), key=lambda one: json.loads(one.read_text("utf-8"))["number"])
    newer.write_bytes(damage(newer.read_bytes()))
    again = StateFile(Location.of(tmp_path / "default")).read()
    assert again.state == STATE  # as the write before the last left it
    again.write(ends={0: 14})
    assert stored(tmp_path).ends == {0: 14}
    for one in copies(tmp_path):
        one.write_bytes(damage(one.read_bytes()))
    assert stored(tmp_path) == StreamState()


def test_the_state_of_a_newer_release_is_refused(file: StateFile, tmp_path: Path) -> None:
    file.replace(STATE)
    (written, _) = copies(tmp_path)
    written.write_text(json.dumps(json.loads(written.read_text("utf-8")) | {"format": 2}), "utf-8")
    with pytest.raises(StorageError, match=r"A newer release wrote .*default\.state0\.json"):
        file.read()


RECORD = {"cluster_id": "cluster", "topic": "topic", "topic_id": "id", "partitions": 50, "partitions_grew": True}
RECORD |= {"groups": "table/default", "history": {"group_events": {"0": 7}}, "starting": {"0": -2, "1": 5}}
RECORD |= {"history_after": "2026-11-01T00:00:00+00:00", "until": {"0": 9}}
OF_0_3 = {
    "topic": RECORD,
    "epochs": {"topic_id": "id", "partitions": {"0": {"end": 12, "epochs": [[3, 0], [4, 10]]}}},
    "tables": {"groups": {"id": "t", "version": 8, "changes": 3, "hash": 4}},
    "slices": {
        "writer": "w",
        "batch": 4,
        "number": 2,
        "halvings": 1,
        "apart": [77],
        "alone": [0, 3, 1],
        "slices": [[[0, 5], 7, False], [None, WHOLE[0].position, False]],
    },
}
NONE, READ = StreamState(), replace(STATE, tables={"groups": TableVersion("t", OwnFiles(8))})
FOUND = {
    "all": ({}, READ),
    "no slices, as in most warehouses": ({"slices": None}, replace(READ, plan=None)),
    "epochs of another topic": ({"epochs": '{"topic_id": "z", "partitions": 3}'}, replace(READ, ends={}, epochs={})),
    "no topic": ({"topic": None}, NONE),
    "a damaged topic": ({"topic": "{"}, NONE),
    "another form": ({"topic": '{"topic_id": "id", "until": 3}'}, NONE),
    "damaged epochs": ({"epochs": "7"}, NONE),
}


@pytest.mark.parametrize(("changed", "expected"), FOUND.values(), ids=FOUND)
def test_the_four_files_of_0_3_are_read_once(
    file: StateFile, tmp_path: Path, changed: dict[str, str | None], expected: StreamState
) -> None:
    for name, content in OF_0_3.items():
        if (text := changed.get(name, json.dumps(content))) is not None:
            (tmp_path / f"default.{name}.json").write_text(text, "utf-8")
    assert file.read().state == expected
    assert sorted(tmp_path.iterdir()) == (copies(tmp_path) if expected.topic_id else [])
    assert stored(tmp_path) == expected


def test_files_of_0_3_that_a_killed_start_left_change_nothing(file: StateFile, tmp_path: Path) -> None:
    (tmp_path / "default.topic.json").write_text(json.dumps({**RECORD, "topic_id": "older"}), "utf-8")
    file.write(**vars(STATE))  # the first of two copies
    assert stored(tmp_path) == STATE
    assert not (tmp_path / "default.topic.json").exists()

"""Lost tables, lost checkpoints, topics made again: the job begins where it must, and history holds nothing twice.

What a job decides in which case is in `test_start_decisions`; here are whole jobs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming_app.errors import JobError
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.container import Broker
from streaming_app.tables.group_rows import GroupRows
from streaming_app.tables.reader import WarehouseReader
from tests.support.offsets_topic import UNDECODABLE, appending, epoch_records

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.broker


@pytest.fixture
def write(broker: Broker) -> Iterator[Callable[..., int]]:
    """Appends records of group g at an epoch, and one that cannot be decoded."""
    with appending(broker.bootstrap_server) as append:
        yield lambda topic, epoch: append(topic, *epoch_records("g", epoch), UNDECODABLE)


@pytest.fixture
def read_topic(
    client: StreamsGroupClient, unique: Callable[[str], str], write: Callable[..., None], run: Callable[..., str]
) -> Callable[..., str]:
    """Creates a topic with group g at these epochs, lets the job read it, and returns its name."""

    def read(*epochs: int) -> str:
        topic = unique("offsets")
        client.create_topic(topic, 1)
        for epoch in epochs:
            write(topic, epoch)
        run(topic)
        return topic

    return read


def held(path: Path) -> tuple[int | None, int, int]:
    """The group's epoch, the number of its events, the number of records in quarantine."""
    opened = WarehouseReader(path)
    groups = opened.rows("SELECT group_epoch FROM groups")
    counts = [opened.rows(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in ("group_events", "quarantine")]
    return (groups[0]["group_epoch"] if groups else None), *counts


def test_what_is_lost_is_read_again_and_the_history_holds_nothing_twice(
    client: StreamsGroupClient, unique: Callable[[str], str], write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    topic = unique("offsets")
    client.create_topic(topic, 1)
    write(topic, 2)
    assert "reading from the beginning" in run(topic)
    first = held(tmp_path)
    assert first[0] == 2

    shutil.rmtree(tmp_path / "groups")
    assert "reading from the beginning again; the history stays" in run(topic)
    assert held(tmp_path) == first

    shutil.rmtree(tmp_path / "_checkpoints")
    write(topic, 3)
    assert "again" in run(topic)
    epoch, events, quarantined = held(tmp_path)
    assert (epoch, quarantined) == (3, 2)
    assert events > first[1]

    shutil.rmtree(tmp_path / "group_events")
    assert "lost or restored since: group_events; reading from the beginning; the history stays" in run(topic)
    assert held(tmp_path) == (3, events, 2)


def test_a_topic_created_again_is_refused_until_a_reset(
    read_topic: Callable[..., str], client: StreamsGroupClient, write: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    topic = read_topic(2, 3, 4)
    before = held(tmp_path)
    client.admin.delete_topics([topic])
    client.create_topic(topic, 1)
    write(topic, 2)
    with pytest.raises(JobError, match=r"deleted and created again since .* --reset"):
        run(topic)
    assert held(tmp_path) == before
    assert "another topic than before" in run(topic, reset=True)
    epoch, events, quarantined = held(tmp_path)
    assert (epoch, quarantined) == (2, before[2] + 1)
    assert events > before[1]
    assert "resuming" in run(topic)


def test_a_reading_from_the_beginning_that_is_interrupted_writes_no_event_twice(
    read_topic: Callable[..., str],
    run: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = read_topic(2, 3)
    before = held(tmp_path)
    for batches in (0, 1):  # that are finished before the failure
        with monkeypatch.context() as patched:
            _fail_after(patched, batches)
            with pytest.raises(JobError, match="The disk is gone"):
                run(topic, reset=not batches, max_offsets_per_trigger=2)
    run(topic)
    assert held(tmp_path) == before


def _fail_after(patched: pytest.MonkeyPatch, batches: int) -> None:
    """Let the rows of groups be written so many times; then the events are written, and the rows are not."""
    done = 0

    def failing(write: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*args: object) -> None:
            nonlocal done
            done += 1
            if done > batches:
                raise OSError("The disk is gone")
            write(*args)

        return wrapped

    patched.setattr(GroupRows, "replace", failing(GroupRows.replace))

"""The service that tries groups again that are set aside: no request and no group is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest

from streaming_app.job.set_aside import SetAsideGroups
from streaming_app.stream.repair import RepairResult
from streaming_app.tables.location import Location
from streaming_app.tables.request_files import ReleaseRequests
from tests.support.frames import write_offset_log
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse


class Rig:
    """The service over tables, requests and a checkpoint on disk; what it reads again is only noted."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse, self.tried = Location.of(warehouse), list[list[str]]()
        repair, brokers = Mock(), MagicMock()
        repair.repair = self.repair
        self.service = SetAsideGroups(self.warehouse, "default", lambda: brokers, repair, lambda _: None)
        self.checkpoint = warehouse / "_checkpoints" / "default"

    def commit_batch(self) -> None:
        write_offset_log(self.checkpoint, [100])
        (self.checkpoint / "commits").mkdir()
        (self.checkpoint / "commits" / "0").write_text("v1\n{}", "utf-8")

    def requests(self) -> list[str]:
        return ReleaseRequests(self.warehouse, "default").group_ids()

    def repair(self, group_ids: Sequence[str], *_: object) -> Mapping[str, RepairResult]:
        self.tried.append(list(group_ids))
        return dict.fromkeys(group_ids, RepairResult.REPLACED)


@pytest.fixture
def make_rig(tmp_path: Path) -> Callable[..., Rig]:
    def make(*group_ids: str, release: str) -> Rig:
        warehouse = make_warehouse(tmp_path)
        marks = {"set_aside_reason": "TypeError: why", "set_aside_release": release}
        append(warehouse, "groups", *(group_row(one, **marks) for one in group_ids))
        return Rig(warehouse)

    return make


def test_a_release_that_comes_before_the_first_batch_is_done_waits_for_it(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig("bad", "other", release="0.1.0")
    ReleaseRequests(rig.warehouse, "default").add("bad")
    rig.service.tick()
    assert rig.tried == []  # no offsets are known up to which the records are to be read
    assert rig.requests() == ["bad"]
    rig.commit_batch()
    rig.service.tick()
    assert rig.tried == [["bad", "other"]]
    assert rig.requests() == []
    rig.service.tick()
    assert len(rig.tried) == 1


def test_all_groups_of_another_release_are_tried_once_however_many_they_are(make_rig: Callable[..., Rig]) -> None:
    names = [f"g{number:03}" for number in range(250)]
    rig = make_rig(*names, release="0.1.0")
    rig.commit_batch()
    for _ in range(4):
        rig.service.tick()
    assert [len(some) for some in rig.tried] == [100, 100, 50]
    assert sorted(one for some in rig.tried for one in some) == names

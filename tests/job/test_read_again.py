"""Groups that are to be read again: no request and no group is left out."""

from pathlib import Path

import pytest

from streaming_app.job.read_again import GroupsToReadAgain
from streaming_app.tables.location import Location
from streaming_app.tables.request_files import ReleaseRequests
from tests.support.a_job import a_job
from tests.support.rows import group_row
from tests.support.warehouses import append, make_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    made = make_warehouse(tmp_path)
    marks = {"set_aside_reason": "TypeError: why", "set_aside_release": "0.1.0"}
    append(made, "groups", *(group_row(one, **marks) for one in ("bad", "other")), group_row("good"))
    return made


def test_groups_of_another_release_are_tried_once_and_released_ones_until_they_are_read(warehouse: Path) -> None:
    job, requests = a_job(warehouse, pytest.fail), ReleaseRequests(Location.of(warehouse), "default")
    groups = GroupsToReadAgain(job)
    assert groups.requested() == {"bad", "other"}
    requests.add("bad")
    assert groups.requested() == {"bad", "other"}
    groups.done({"bad", "other"})
    assert (groups.requested(), requests.group_ids()) == (set(), [])
    requests.add("other")
    groups.done(set())
    assert groups.requested() == {"other"}
    assert GroupsToReadAgain(job).requested() == {"bad", "other"}  # the job was killed before it read them


@pytest.mark.parametrize(("enabled", "expected"), [(True, {"without a row", "was streams"}), (False, {"with a row"})])
def test_classic_groups_without_a_row_are_read_once_and_without_the_setting_those_with_one(
    tmp_path: Path, enabled: bool, expected: set[str]
) -> None:
    warehouse, of_classic = make_warehouse(tmp_path), {"group_type": "classic", "protocol": "classic"}
    append(warehouse, "groups", group_row("with a row", "Unknown", **of_classic), group_row("streams now"))
    append(warehouse, "groups", group_row("deleted", "Dead", **of_classic), group_row("was streams", "Dead"))
    last = {"record_type": 2, "member_id": "", "protocol_type": "consumer", "protocol": "stream", "last_offset": 5}
    ids = ("with a row", "without a row", "was streams", "deleted", "range now", "streams now")
    append(warehouse, "group_records", *({"group_id": one, "deleted": False, **last} for one in ids))
    later = ({"deleted": True}, {"protocol": "range", "deleted": False}, {"deleted": True})
    newer = [{"group_id": one, **last, **other, "last_offset": 9} for one, other in zip(ids[3:], later, strict=True)]
    append(warehouse, "group_records", *newer)
    groups = GroupsToReadAgain(a_job(warehouse, pytest.fail, {"classic_streams": {"enabled": enabled}}))
    assert groups.requested() == expected
    groups.done(expected)
    assert groups.requested() == set()

"""Where the lock is, and what identifies it; test_errors.py tests that it excludes jobs, test_owner.py other locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_app.job.lock import hold_job_lock, state_directory
from streaming_app.tables.location import Location

STORE = Location.of("s3a://bucket/warehouse")


def test_the_lock_of_a_local_warehouse_is_in_it_unless_configured(tmp_path: Path) -> None:
    assert state_directory(Location.of(tmp_path), None) == tmp_path / "_jobs"
    assert state_directory(Location.of(tmp_path), Path("other")) == Path("other").absolute()


def test_the_lock_of_a_warehouse_in_a_store_is_in_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, other = state_directory(STORE, None), state_directory(STORE / "other", None)
    assert one != other
    assert {one.parent, other.parent} == {tmp_path / "streams-groups"}
    assert state_directory(STORE, tmp_path) == tmp_path


def test_a_lock_has_an_id_that_its_holders_share(tmp_path: Path) -> None:
    ids = []
    for directory in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        with hold_job_lock(directory, "default") as lock_id:
            ids.append(lock_id)
    assert ids[0] == ids[1] != ids[2]
    (tmp_path / "a" / "default.json").write_text("{", "utf-8")  # its process was killed while it wrote
    with hold_job_lock(tmp_path / "a", "default") as lock_id:
        assert lock_id not in ids

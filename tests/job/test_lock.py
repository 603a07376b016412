"""Where the lock is; that it excludes other jobs is tried in test_refusals.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_app.job.errors import JobError
from streaming_app.job.lock import only_job, state_directory
from streaming_app.serve.place import Place

STORE = Place.of("s3a://bucket/warehouse")


def test_the_lock_of_a_local_warehouse_is_in_it_unless_told_otherwise(tmp_path: Path) -> None:
    assert state_directory(Place.of(tmp_path), None) == tmp_path / "_jobs"
    assert state_directory(Place.of(tmp_path), Path("other")) == Path("other").absolute()


def test_the_lock_of_a_warehouse_in_a_store_is_in_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, other = state_directory(STORE, None), state_directory(STORE / "other", None)
    assert one != other
    assert {one.parent, other.parent} == {tmp_path / "streams-groups"}
    assert state_directory(STORE, tmp_path) == tmp_path


def test_a_directory_for_state_that_cannot_be_made_is_named_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(JobError, match="Cannot write state_dir: Not a directory"),
        only_job(tmp_path / "file" / "x", "default", "state_dir"),
    ):
        pass

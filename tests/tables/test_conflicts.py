"""Only a commit that another one has overtaken is repeated: with a limit, and not while the job ends."""

from pathlib import Path
from threading import Event

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from streaming_app.tables import kept_table
from streaming_app.tables.fence import Fence
from streaming_app.tables.location import Location
from streaming_app.tables.rust_table import CommitOptions, RustTable
from tests.support.fencing import CLUSTER
from tests.support.warehouses import make_warehouse

ATTEMPTS = 12


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setattr(kept_table, "_PAUSE_SECONDS", (0.0, 0.001))
    return Location.of(make_warehouse(tmp_path) / "lag")


@pytest.mark.parametrize(("stop_at", "expected"), [(None, ATTEMPTS), (3, 3)], ids=["for ever", "until the job ends"])
def test_a_commit_that_is_always_overtaken_is_tried_a_dozen_times_and_not_once_the_job_ends(
    place: Location, stop_at: int | None, expected: int
) -> None:
    stop, other, attempts = Event(), Fence("other", 1), list[int]()

    def write(_target: DeltaTable, _commit: CommitOptions) -> None:
        attempts.append(1)
        if len(attempts) == stop_at:
            stop.set()
        other.claim([place])
        raise CommitFailedError("overtaken")

    with pytest.raises(OSError, match="Cannot write the table lag: overtaken"):
        RustTable(place, CLUSTER, Fence(CLUSTER, 1, stop)).change(write)
    assert len(attempts) == expected


def test_an_error_of_a_commit_that_nobody_overtook_is_raised_at_once(place: Location) -> None:
    attempts = list[int]()

    def write(_target: DeltaTable, _commit: CommitOptions) -> None:
        attempts.append(1)
        raise CommitFailedError("Unsupported table features required")

    with pytest.raises(OSError, match="Unsupported table features"):
        RustTable(place, CLUSTER).change(write)
    assert attempts == [1]

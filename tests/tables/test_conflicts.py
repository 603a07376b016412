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


class Overtaken:
    """Writes to a table that another job always overtakes."""

    def __init__(self, place: Location, stop: Event | None = None, stop_at: int = 0) -> None:
        self.table = RustTable(place, CLUSTER, Fence(CLUSTER, 1, stop))
        self._stop, self._stop_at, self._other, self.attempts = stop, stop_at, Fence("other", 1), 0

    def write(self, _target: DeltaTable, _commit: CommitOptions) -> None:
        self.attempts += 1
        if self._stop and self.attempts == self._stop_at:
            self._stop.set()
        self._other.claim([self.table.location])
        raise CommitFailedError("overtaken")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setattr(kept_table, "_PAUSE_SECONDS", (0.0, 0.001))
    return Location.of(make_warehouse(tmp_path) / "lag")


def test_a_commit_that_is_always_overtaken_is_tried_a_dozen_times(place: Location) -> None:
    overtaken = Overtaken(place)
    with pytest.raises(OSError, match="Cannot write the table lag: overtaken"):
        overtaken.table.change(overtaken.write)
    assert overtaken.attempts == ATTEMPTS


def test_a_commit_is_not_repeated_once_the_job_ends(place: Location) -> None:
    overtaken = Overtaken(place, Event(), stop_at=3)
    with pytest.raises(OSError, match="overtaken"):
        overtaken.table.change(overtaken.write)
    assert overtaken.attempts == 3


def test_an_error_of_a_commit_that_nobody_overtook_is_raised_at_once(place: Location) -> None:
    attempts = list[int]()

    def write(_target: DeltaTable, _commit: CommitOptions) -> None:
        attempts.append(1)
        raise CommitFailedError("Unsupported table features required")

    with pytest.raises(OSError, match="Unsupported table features"):
        RustTable(place, CLUSTER).change(write)
    assert attempts == [1]

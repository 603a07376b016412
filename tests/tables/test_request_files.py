"""Files by which people ask the job for something."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from streaming_app.notify.mutes import Mutes
from streaming_app.tables import request_files
from streaming_app.tables.health_tables import EndedAlerts
from streaming_app.tables.location import Location
from streaming_app.tables.request_files import ReleaseRequests

READERS = [
    lambda location: Mutes(location, "prod").refresh,
    lambda location: EndedAlerts(location, "prod").reasons,
    lambda location: ReleaseRequests(location, "prod").group_ids,
]


@pytest.mark.parametrize("reader_of", READERS, ids=["mutes", "ended alerts", "releases"])
def test_a_store_is_looked_into_every_30_seconds_and_a_local_directory_each_time(
    monkeypatch: pytest.MonkeyPatch, reader_of: Callable[[Location], Callable[[], object]]
) -> None:
    looks: list[str] = []
    monkeypatch.setattr(Location, "names", lambda self: looks.append(str(self)) or [])
    now = 1_000.0
    monkeypatch.setattr(request_files, "time", SimpleNamespace(monotonic=lambda: now))
    for uri, expected in (("/tmp/local", 5), ("s3a://bucket/warehouse", 2)):  # noqa: S108 - nothing is there
        look = reader_of(Location.of(uri))
        looks.clear()
        for now in (1_000.0, 1_010.0, 1_020.0, 1_029.0, 1_031.0):  # noqa: B007 - what the clock says
            look()
        assert len(looks) == expected, looks

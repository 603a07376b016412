"""Relation A: whenever it is asked, each surface says which pass it shows; of one pass all say the same.

A pass is what the lag service writes. None is older than the newest pass, also after hours in which nothing changed,
when neither rows nor verdicts are written. After a restart, until the first pass, all say that they show the last one
of the run before.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest

from streaming_app.health.verdict import OK, Verdict
from streaming_app.lag.model import LagRow
from streaming_app.tables.lag_tables import KnownUntil
from streaming_app.tables.reader import WarehouseReader
from tests.job.test_lag_service import Passes
from tests.relations import surfaces
from tests.support.lag_harness import GROUP, row

pytestmark = pytest.mark.slow
INTERVAL, READ = 30.0, 3.0
"""Seconds between two passes, and how long before a pass the log was read."""
CALM = [row(leader=2, lag=0, lag_seconds=0.0, partition=n) for n in range(2)]
BUSY = [one._replace(lag=7, lag_seconds=5.0, offset_status="WAITS") for one in CALM]


@pytest.fixture
def passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Passes:
    found = Passes(tmp_path / "warehouse", monkeypatch)
    began = datetime.fromtimestamp(found.now - 7_200, timezone.utc)
    surfaces.write(found.path, {GROUP: Verdict(OK, began, began, "Offsets advance.", facts_at=began)}, [])
    return found


def moments(passes: Passes) -> Iterator[tuple[str, float, float]]:
    """Yield a name of a moment, when it is, and up to when the newest pass knew everything."""

    def run(rows: list[LagRow], seconds: float = INTERVAL) -> float:
        known = passes.now + seconds - READ
        passes.known = KnownUntil(known, {}, {2: passes.now + seconds})
        passes.run(rows, seconds)
        return known

    known = run(BUSY)
    yield "after the first pass", passes.now, known
    yield "between two passes", passes.now + INTERVAL / 2, known
    yield "just before the next one", passes.now + INTERVAL, known
    for _ in range(4):
        known = run(CALM)
    yield "after passes without a change", passes.now, known
    known = run(CALM, 3 * 3_600.0)
    for _ in range(2):
        known = run(CALM)
    yield "after hours without a change", passes.now + INTERVAL / 3, known
    passes.start()
    yield "just started", passes.now + 5.0, known
    known = run(BUSY)
    yield "after the first pass of another run", passes.now, known


def said(passes: Passes) -> Mapping[str, set[object]]:
    """Return by surface which times it shows."""
    reader, only = WarehouseReader(passes.path), f"WHERE group_id = '{GROUP}'"
    return {
        "lag": {one["known_until"] for one in reader.rows(f"SELECT known_until FROM lag {only}")},
        "lag_sums": {one["known_until"] for one in reader.rows(f"SELECT known_until FROM lag_sums {only}")},
        "group_overview": {one["known_until"] for one in reader.rows(f"SELECT known_until FROM group_overview {only}")},
        **{
            f"lag --by {by}": {_time(one["known_until"]) for one in surfaces.ask(passes.path, "lag", "--by", by)}
            for by in ("group", "partition")
        },
        "why": {_time(surfaces.ask(passes.path, "why", GROUP)["known_until"])},
    }


def test_at_each_moment_all_surfaces_show_the_newest_pass_and_say_when_it_was(passes: Passes) -> None:
    for name, at, known in moments(passes):
        expected = {datetime.fromtimestamp(known, timezone.utc).replace(microsecond=0)}
        for surface, times in said(passes).items():
            assert {_seconds(one) for one in times} == expected, (name, surface)
        assert at - known <= READ + INTERVAL, name


def _time(text: object) -> datetime:
    return datetime.fromisoformat(str(text).replace("Z", "+00:00"))


def _seconds(time: object) -> datetime:
    assert isinstance(time, datetime)
    return time.replace(microsecond=0)

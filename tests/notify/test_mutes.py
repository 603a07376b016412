"""Which alerts are muted, and until when; what is sent of them then is tested in `tests/alerts/test_engine.py`."""

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_app.config.declared import GroupTimesSettings, NamedIntervals, make_times_of
from streaming_app.errors import WarehouseError
from streaming_app.notify.mutes import Mute, Mutes, new_mute
from tests.alerts.examples import make_alert
from tests.support.warehouses import make_warehouse

NOW = datetime(2026, 11, 22, 8, tzinfo=timezone.utc)
MORNING = {"start_time": "06:00", "end_time": "09:00"}


class Muted:
    """A warehouse with mutes, and a clock that the test moves."""

    def __init__(self, warehouse: Path) -> None:
        self.now = NOW
        self.lines: list[str] = []
        self.warehouse = warehouse
        self.store = Mutes(warehouse, "prod")

    def add(self, pattern: str = "pay.*", duration: str = "1h", now: datetime | None = None) -> Mute:
        mute = new_mute(pattern=pattern, duration=duration, reason="deployment", created_by="me", now=now or self.now)
        self.store.add(mute)
        return mute

    def active(self) -> Mutes:
        mutes = Mutes(self.warehouse, "prod", self.lines.append, lambda: self.now)
        mutes.refresh()
        return mutes

    @property
    def directory(self) -> Path:
        return self.warehouse / "_jobs" / "prod.silences"


@pytest.fixture
def muted(tmp_path: Path) -> Muted:
    return Muted(make_warehouse(tmp_path))


def test_an_alert_is_muted_within_its_mute_times(muted: Muted) -> None:
    entries = GroupTimesSettings.model_validate({"groups": "pay.*", "time_intervals": "mornings"})
    mornings = NamedIntervals.model_validate({"name": "mornings", "time_intervals": [{"times": [MORNING]}]})
    times_of = make_times_of([entries], [mornings])
    mutes = Mutes(muted.warehouse, "prod", now=lambda: muted.now, times_of=times_of)
    found = [mutes.find(make_alert(group_id=one)) for one in ("payments", "other", None)]
    assert [one and (one.ends_at, one.reason) for one in found] == [
        (NOW + timedelta(hours=1), "its mute_times"),
        None,
        None,
    ]
    muted.now += timedelta(hours=1)
    assert mutes.find(make_alert()) is None


@given(
    group=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    other=st.text(max_size=40),
    seconds=st.integers(1, 30 * 86_400),
    at=st.integers(-301, 30 * 86_400),
)
def test_a_mute_of_a_group_by_its_id_is_of_no_other_group_and_ends_when_it_says(
    group: str, other: str, seconds: int, at: int
) -> None:
    made = new_mute(pattern=re.escape(group), duration=f"{seconds}s", reason="why", created_by="me", now=NOW)
    mute = Mute.model_validate_json(made.model_dump_json())
    assert mute == made
    found = {one: mute.matches(make_alert(group_id=one)) for one in (group, other, f"{group}x", f"x{group}", None)}
    assert found == {one: one == group for one in found}
    assert mute.is_active(NOW + timedelta(seconds=at)) == (-300 <= at < seconds)


def test_mutes_of_another_cluster_do_not_count(muted: Muted) -> None:
    Mutes(muted.warehouse, "test").add(muted.add())
    muted.add(duration="0s")
    assert muted.active().find(make_alert()) is None
    other = Mutes(muted.warehouse, "test", now=lambda: muted.now)
    other.refresh()
    assert other.find(make_alert())


@pytest.mark.parametrize("ahead", [-240, 0, 240])
def test_a_later_mute_of_the_same_pattern_replaces_the_one_before_whatever_the_clocks_say(
    muted: Muted, ahead: int
) -> None:
    """The first one was added on a machine whose clock is ahead, or behind."""
    mutes = muted.active()
    muted.add(duration="10h", now=NOW + timedelta(seconds=ahead))
    muted.add("other", duration="10h")
    muted.now += timedelta(seconds=1)
    muted.add(duration="2h")
    mutes.refresh()
    found = mutes.find(make_alert())
    assert found is not None
    assert found.ends_at == muted.now + timedelta(hours=2)
    muted.now += timedelta(seconds=1)
    muted.add(duration="0s")
    mutes.refresh()
    assert mutes.find(make_alert()) is None
    assert mutes.find(make_alert(group_id="other"))
    muted.add(duration="1h")
    mutes.refresh()
    assert mutes.find(make_alert())


@pytest.mark.parametrize("broken", ["{", "{}", None])
def test_a_file_that_is_no_mute_is_reported_once_and_mutes_nothing(muted: Muted, broken: str | None) -> None:
    muted.add()
    (file,) = muted.directory.iterdir()
    endless = json.loads(file.read_text()) | {"ends_at": "9999-01-01T00:00:00Z"}
    file.write_text(json.dumps(endless) if broken is None else broken)
    mutes = muted.active()
    mutes.refresh()
    assert mutes.active == ()
    assert mutes.find(make_alert()) is None
    assert muted.lines == [f"mutes: {file} is not a mute that this release can read"]
    with pytest.raises(WarehouseError, match="is not a mute"):
        muted.add(duration="0s")
    muted.add()
    mutes.refresh()
    assert mutes.find(make_alert())


def test_mutes_stay_while_their_directory_cannot_be_read(muted: Muted, monkeypatch: pytest.MonkeyPatch) -> None:
    muted.add()
    mutes = muted.active()

    def fail(_location: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("streaming_app.tables.location.Location.names", fail)
    mutes.refresh()
    mutes.refresh()
    assert mutes.find(make_alert())
    assert len(muted.lines) == 1
    assert muted.lines[0].endswith("prod.silences: Input/output error")


def test_mutes_that_ended_long_ago_are_removed_when_one_is_added(muted: Muted) -> None:
    muted.add("old", duration="1h")
    old = {file.name for file in muted.directory.iterdir()}
    muted.add("recent", duration="2d")
    kept = {file.name for file in muted.directory.iterdir()} - old
    muted.now += timedelta(days=31)
    muted.add("newest")
    names = {file.name for file in muted.directory.iterdir()}
    assert kept < names
    assert not old & names

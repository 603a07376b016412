"""`alerts backtest`: recorded events and lag give the alerts that the job would have sent, also with other settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.notify.silences import SilenceStore, new_silence
from tests.rows import Row, subtopology_row
from tests.warehouses import append, make_warehouse

NOW = datetime.now(timezone.utc).replace(second=0, microsecond=0)  # when the module was loaded: options name times
DOWN_AT, BACK_AT = NOW - timedelta(minutes=60), NOW - timedelta(minutes=20)
BEGAN = NOW - timedelta(days=20)


def event(at: datetime, kind: str, old: str | None, new: str | None, **columns: Any) -> Row:
    event.offset += 1  # type: ignore[attr-defined]
    common = {"group_id": "payments", "source_partition": 0, "offset": event.offset}  # type: ignore[attr-defined]
    return {**common, "at": at, "kind": kind, "old": old, "new": new, **columns}


event.offset = 0  # type: ignore[attr-defined]


def events() -> Iterator[Row]:
    member = {"member_id": "m", "client_host": "/10.0.0.1"}
    yield event(BEGAN, "created", None, "streams")
    for at, old in ((BEGAN, "NotReady"), (BACK_AT, "Empty")):
        yield event(at, "member_joined", None, "client", **member)
        yield event(at, "assignment", None, "active 0_0", **member)
        yield event(at, "state", old, "Stable")
        if at == BEGAN:
            yield event(DOWN_AT, "member_left", "client", None, **member)
            yield event(DOWN_AT, "state", "Stable", "Empty")


def samples(gap: tuple[datetime, datetime] | None = None) -> Iterator[Row]:
    """Yield what a job writes: ten records a minute come, and are committed while there is a member."""
    for minute in range(60 * 6):
        at = NOW - timedelta(minutes=60 * 6 - minute)
        if gap and gap[0] <= at < gap[1]:
            continue
        crashing = DOWN_AT - timedelta(minutes=2)  # it commits nothing as it leaves
        processed = minute if at < crashing or at >= BACK_AT + timedelta(minutes=2) else 60 * 5 - 3
        offsets = {"committed_offset": 10 * processed, "log_start_offset": 0, "log_end_offset": 10 * minute + 5}
        common = {"group_id": "payments", "topic": "in", "partition": 0, "status": "OK"}
        yield {**common, **offsets, "lag": offsets["log_end_offset"] - offsets["committed_offset"], "observed_at": at}


def fill(path: Path, *rows: Row, happened: Iterable[Row] = ()) -> Path:
    make_warehouse(path)
    append(path, "group_events", *(happened or events()))
    append(path, "lag_history", *rows)
    topology = {"group_id": "payments", "topology_hash": "x", "topology_epoch": 0, "first_seen_at": BEGAN}
    parts = [subtopology_row("0", source_topics=["in"])]
    append(path, "topologies", {**topology, "subtopologies": parts, "source_partition": 0, "offset": 0})
    return path


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("warehouse"), *samples())


def ago(minutes: int) -> str:
    return (NOW - timedelta(minutes=minutes)).isoformat()


def play(warehouse: Path, *arguments: str) -> Any:
    options = ["--from", ago(180), "--to", ago(0), "--warehouse", str(warehouse), "--json", *arguments]
    result = CliRunner().invoke(main, ["alerts", "backtest", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def brief(found: Any) -> list[tuple[str, str, float]]:
    """Return what was heard, and how many minutes after the group went down."""
    return [
        (one["what"], one["rule"], (datetime.fromisoformat(one["at"]) - DOWN_AT).total_seconds() / 60)
        for one in found["alerts"]
    ]


def test_an_outage_is_found_when_the_job_would_have_and_ends_by_evidence(warehouse: Path) -> None:
    (opened, ended) = brief(play(warehouse))
    assert opened == ("opened", "StreamsGroupDown", 5)
    assert ended[:2] == ("ended", "StreamsGroupDown")
    assert 40 < ended[2] <= 43  # the offsets advance two minutes after the members are back


@pytest.mark.parametrize(("after", "minutes"), [("15m", 15), ("1m", 1), ("50m", None)])
def test_another_setting_changes_what_is_heard(
    warehouse: Path, tmp_path: Path, after: str, minutes: int | None
) -> None:
    file = tmp_path / "f.yaml"
    rules = {"StreamsGroupDown": {"after": after}, "StreamsGroupStalled": {"enabled": False}}
    sinks = [{"type": "log", "name": name} for name in ("pager", "chat")]
    routes = [{"groups": "pay.*", "severity": "critical", "team": "payments", "sinks": "pager"}]
    file.write_text(json.dumps({"alerts": {"rules": rules}, "sinks": sinks, "routes": routes}))
    found = play(warehouse, "--config", str(file))
    assert [one[2] for one in brief(found) if one[0] == "opened"] == ([] if minutes is None else [minutes])
    assert {(one["team"], *one["sinks"]) for one in found["alerts"]} == ({("payments", "pager")} if minutes else set())


@pytest.mark.parametrize(("minutes", "told"), [(30, 30), (50, None)])
def test_what_is_silenced_is_told_when_the_silence_ends_if_it_goes_on(
    warehouse: Path, tmp_path: Path, minutes: int, told: int | None
) -> None:
    day = f"{DOWN_AT:%d}".lstrip("0")
    until = DOWN_AT + timedelta(minutes=minutes)
    midnight = until.date() != DOWN_AT.date()
    times = [{"start_time": f"{DOWN_AT:%H:%M}", "end_time": "24:00" if midnight else f"{until:%H:%M}"}]
    intervals = [{"times": times, "days_of_month": [day]}]
    if midnight:
        rest = [{"start_time": "00:00", "end_time": f"{until:%H:%M}"}] if f"{until:%H:%M}" != "00:00" else []
        intervals += [{"times": rest, "days_of_month": [f"{until:%d}".lstrip("0")]}] if rest else []
    named = [{"name": "work", "time_intervals": intervals}]
    file = tmp_path / "f.yaml"
    silences = [{"groups": "pay.*", "mute_time_intervals": "work"}]
    file.write_text(json.dumps({"time_intervals": named, "silences": silences}))
    heard = brief(play(warehouse, "--config", str(file)))
    assert heard[0] == ("silenced", "StreamsGroupDown", 5)
    assert [one[::2] for one in heard[1:] if one[0] == "opened"] == ([("opened", told)] if told else [])
    assert [one[0] for one in heard if one[0] == "ended"] == (["ended"] if told else [])


def test_a_silence_that_somebody_added_is_played(tmp_path: Path) -> None:
    path = fill(tmp_path / "warehouse", *samples())
    at = DOWN_AT - timedelta(minutes=1)
    added = {"group": "payments", "rule": None, "duration": "2h", "comment": "move", "created_by": "ada", "now": at}
    SilenceStore(path, "default").add(new_silence(**added))
    assert [one[0] for one in brief(play(path))] == ["silenced"]


def test_only_the_time_that_is_asked_for_is_told_and_what_was_open_at_its_begin(warehouse: Path) -> None:
    assert brief(play(warehouse, "--to", ago(90))) == []
    before = [one[:2] for one in brief(play(warehouse, "--from", ago(40)))]
    assert before == [("opened", "StreamsGroupDown"), ("ended", "StreamsGroupDown")]
    assert brief(play(warehouse, "--from", ago(10))) == []


def test_what_is_not_recorded_is_named(tmp_path: Path) -> None:
    gap = NOW - timedelta(minutes=300), NOW - timedelta(minutes=100)
    rows = [{name: value for name, value in row.items() if name != "log_start_offset"} for row in samples(gap)]
    lacks = "\n".join(play(fill(tmp_path / "warehouse", *rows))["lacks"])
    begin = gap[0] + timedelta(minutes=64)  # an hour after the last row
    assert any(f"the lag from {begin + timedelta(minutes=one):%Y-%m-%d %H:%M}" in lacks for one in (0, 1))
    assert "starts of logs in rows of an older release" in lacks
    assert "the retention of topics" in lacks


def test_a_rebalance_that_is_held_up_is_found_although_who_does_it_is_not_recorded(tmp_path: Path) -> None:
    member, other = ({"member_id": name, "client_host": "/10.0.0.1"} for name in "mo")
    happened = [
        event(BEGAN, "created", None, "streams"),
        *(event(BEGAN, "member_joined", None, "client", **one) for one in (member, other)),
        event(BEGAN, "assignment", None, "active 0_0", **member),
        event(BEGAN, "state", "Reconciling", "Stable"),
        event(DOWN_AT, "state", "Stable", "Reconciling"),
        event(DOWN_AT + timedelta(minutes=2), "assignment", None, "active 0_1", **other),
    ]
    rests = [{**row, "lag": 0, "committed_offset": row["log_end_offset"]} for row in samples()]
    found = play(fill(tmp_path / "warehouse", *rests, happened=happened))
    ((what, rule, minutes),) = brief(found)
    assert (what, rule, round(minutes)) == ("opened", "StreamsGroupStalled", 2 + 5 + 1)
    assert "it does not complete a rebalance: a member that is not recorded" in found["alerts"][0]["summary"]


def test_an_assignment_that_does_not_come_is_found_with_the_epoch_that_waits_for_it(tmp_path: Path) -> None:
    happened = [
        event(BEGAN, "created", None, "streams"),
        event(BEGAN, "member_joined", None, "client", member_id="m", client_host="/10.0.0.1"),
        event(DOWN_AT, "group_epoch", "2", "3"),
        event(DOWN_AT, "state", "Stable", "Assigning"),
    ]
    rests = [{**row, "lag": 0, "committed_offset": row["log_end_offset"]} for row in samples()]
    found = play(fill(tmp_path / "warehouse", *rests, happened=happened))
    assert [one[:2] for one in brief(found)] == [("opened", "StreamsGroupStalled")]
    assert "group epoch 3 has no assignment yet" in found["alerts"][0]["summary"]


def test_it_is_a_table_for_people_and_wrong_times_are_one_line(warehouse: Path) -> None:
    command = ["alerts", "backtest", "--warehouse", str(warehouse), "--from"]
    result = CliRunner().invoke(main, [*command, ago(180), "--to", ago(0)])
    names, *rows = result.stdout.splitlines()
    assert names.split() == ["AT", "WHAT", "SEVERITY", "RULE", "GROUP", "TEAM", "TO", "SUMMARY"]
    assert [row.split()[1:4] for row in rows] == [
        [what, "critical", "StreamsGroupDown"] for what in ("opened", "ended")
    ]
    assert all(line.startswith("Lacks ") for line in result.stderr.splitlines())
    refused = CliRunner().invoke(main, [*command, "1h", "--to", "2h"])
    assert (refused.exit_code, refused.stderr.splitlines()[-1]) == (2, "Error: --from must be before --to.")

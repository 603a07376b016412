"""The group cache: with tables written by delta-rs, and batches as the stream passes them."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming_app.errors import WarehouseError
from streaming_app.job.group_cache import GroupCache
from streaming_app.stream.batch_rows import EVENT_COLUMNS, BatchRows, to_tables
from streaming_app.stream.job_state import JobState
from tests.support.a_job import a_job
from tests.support.rows import group_row, member_row, task_row
from tests.support.warehouses import append, make_warehouse, replace_rows

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)


def row(group_id: str, offset: int = 1, state: str = "Stable", **others: Any) -> dict[str, Any]:
    """Return the row of a group, with its events."""
    own = {"state_since": NOW, "last_offset": offset, "events": [], "retracted": []}
    return group_row(group_id, state, **own | others)


def folded(*rows: dict[str, Any]) -> BatchRows:
    def of_events(name: str) -> list[tuple[Any, ...]]:
        events = [{"cluster": "default", "group_id": one["group_id"], **event} for one in rows for event in one[name]]
        return [tuple(event.get(column) for column in EVENT_COLUMNS) for event in events]

    return to_tables(
        [{"groups": list(rows), "group_events": of_events("events"), "retracted": of_events("retracted")}], {}
    )


def event(at: datetime | None, kind: str, old: str | None, new: str | None, **others: Any) -> dict[str, Any]:
    """Return an event; its offset is its minute after NOW unless another one is given."""
    offset = int((at - NOW) / timedelta(minutes=1)) + 1000 if at else 0
    nulls = dict.fromkeys(("member_id", "cause", "client_host", "instance_id"))
    return nulls | {"at": at, "kind": kind, "old": old, "new": new, "offset": offset} | others


def rebalance(at: datetime | None, old: str | None = "1") -> dict[str, Any]:
    return event(at, "assignment_epoch", old, "2", cause="member_joined")


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def member(name: str, state: str, epoch: int, updated_at: datetime = NOW) -> dict[str, Any]:
    of_process = {"client_id": name, "process_id": f"{name}-process", "rebalance_timeout_ms": 60_000}
    return member_row(f"{name}-id", member_state=state, member_epoch=epoch, updated_at=updated_at, **of_process)


def task(member_id: str, partition: int, *, current: bool, target: bool, revoking: bool = False) -> dict[str, Any]:
    return task_row(member_id, f"0_{partition}", current=current, target=target, pending_revocation=revoking)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return make_warehouse(tmp_path / "warehouse")


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(time=NOW)


@pytest.fixture
def health() -> JobState:
    return JobState()


@pytest.fixture
def cache(warehouse: Path, health: JobState, clock: SimpleNamespace) -> GroupCache:
    return GroupCache(a_job(warehouse, pytest.fail, health=health, now=lambda: clock.time))


def store(warehouse: Path, *rows: dict[str, Any]) -> None:
    """Replace all rows of `groups`."""
    replace_rows(warehouse, "groups", *rows)


def add_events(warehouse: Path, *events: tuple[str, dict[str, Any]], cluster: str = "default") -> None:
    rows = [{"cluster": cluster, "group_id": group_id, "source_partition": 0, **event} for group_id, event in events]
    append(warehouse, "group_events", *rows)


def states(cache: GroupCache) -> dict[str, str]:
    cache.refresh()
    return {name: group.state for name, group in cache.groups().items()}


def test_groups_are_those_of_the_tables_and_of_the_batches_until_the_last_refresh(
    warehouse: Path, cache: GroupCache
) -> None:
    of_other = row("c") | {"cluster": "other"}
    store(warehouse, row("a"), row("b", 2, "Assigning"), row("deleted", state="Dead"), of_other)
    (warehouse / "groups").rename(warehouse / "moved")
    cache.on_rows(folded(row("b", 2, "Assigning")))
    with pytest.raises(WarehouseError):
        cache.refresh()
    assert cache.groups() == {}
    (warehouse / "moved").rename(warehouse / "groups")
    cache.refresh()
    before = cache.groups()
    cache.on_rows(folded(row("b", 3, "NotReady", not_ready_reason="MISSING_SOURCE_TOPICS: orders")))
    assert cache.groups() == before
    assert states(cache) == {"a": "Stable", "b": "NotReady"}
    assert (cache.groups()["b"].not_ready_reason, cache.groups()["b"].state_since) == (
        "MISSING_SOURCE_TOPICS: orders",
        NOW,
    )
    assert {name: group.state for name, group in before.items()} == {"a": "Stable", "b": "Assigning"}


def test_no_group_is_missing_once_what_the_job_had_read_was_refreshed(
    warehouse: Path, health: JobState, cache: GroupCache
) -> None:
    cache.refresh()
    assert not cache.is_complete
    cache.on_bulk_change()
    health.nothing_new(NOW)
    moved = warehouse.rename(warehouse.with_name("away"))
    with pytest.raises(WarehouseError):
        cache.refresh()
    assert not cache.is_complete
    moved.rename(warehouse)
    cache.refresh()
    assert cache.is_complete
    # A query that starts again reads what it missed: the groups stay known.
    health.started_reading(from_beginning=True, tombstone_retention=timedelta(days=1))
    cache.refresh()
    assert cache.is_complete


def test_a_row_with_a_lower_offset_is_ignored_and_one_with_the_same_offset_is_used(cache: GroupCache) -> None:
    cache.refresh()
    cache.on_rows(folded(row("a", 7, "Stable"), row("b", 7, "NotReady")))
    cache.on_rows(folded(row("a", 6, "Assigning"), row("b", 7, "NotReady", not_ready_reason="found later")))
    assert states(cache) == {"a": "Stable", "b": "NotReady"}
    assert cache.groups()["b"].not_ready_reason == "found later"


def test_reading_the_table_again_replaces_everything_except_newer_queued_rows(
    warehouse: Path, cache: GroupCache
) -> None:
    store(warehouse, row("reset", 90), row("removed", 5))
    cache.refresh()
    store(warehouse, row("reset", 3, "Empty"), row("newer", 10), row("same", 10, "Empty"))
    cache.on_rows(folded(row("newer", 11, "Assigning"), row("same", 10, "Assigning")))
    cache.on_bulk_change()
    assert states(cache) == {"reset": "Empty", "newer": "Assigning", "same": "Empty"}


@pytest.mark.parametrize("large", [False, True], ids=["small batch", "large batch"])
def test_a_deleted_group_is_dead_for_one_refresh_and_then_removed(
    warehouse: Path, cache: GroupCache, *, large: bool
) -> None:
    store(warehouse, row("a", 1), row("b", 1))
    cache.refresh()
    dead = row("a", 2, "Dead", deleted_at=NOW, events=[rebalance(NOW)])
    if large:
        store(warehouse, dead, row("b", 1), row("never known", 1, "Dead"))
        cache.on_bulk_change()
    else:
        cache.on_rows(folded(dead))
    assert states(cache) == {"a": "Dead", "b": "Stable"}
    assert states(cache) == {"b": "Stable"}
    assert ("a" in cache.histories()) != large  # for the window: if the group comes back, its outage goes on
    assert cache.rebalances_total("a") == 0
    cache.on_bulk_change()
    assert states(cache) == ({"b": "Stable"} if large else {"a": "Stable", "b": "Stable"})


def test_a_deleted_group_with_a_stored_verdict_is_dead_once_after_a_start(warehouse: Path, cache: GroupCache) -> None:
    replace_rows(warehouse, "group_health_history", {"group_id": "a", "at": NOW, "verdict": "Down"})
    store(warehouse, row("a", 2, "Dead", group_type="classic"), row("b", 1), row("without a verdict", 1, "Dead"))
    assert states(cache) == {"a": "Dead", "b": "Stable"}
    cache.on_bulk_change()
    assert states(cache) == {"b": "Stable"}


@pytest.mark.parametrize("large", [False, True], ids=["small batch", "large batch"])
def test_unsettled_members_are_read_with_their_tasks_while_the_group_rebalances(
    warehouse: Path, cache: GroupCache, *, large: bool
) -> None:
    members = [member("slow", "UNREVOKED_TASKS", 6), member("waits", "UNRELEASED_TASKS", 7), member("ok", "STABLE", 7)]
    tasks = [
        task("slow-id", 0, current=True, target=True),
        task("slow-id", 1, current=False, target=False, revoking=True),
        task("waits-id", 1, current=False, target=True),
        task("ok-id", 2, current=True, target=True),
    ]
    details = {"members": members, "assignments": tasks, "assignment_epoch": 7}
    rows = [row("moving", state="Reconciling", **details), row("stable", **details)]
    if large:
        store(warehouse, *rows)
    else:
        cache.on_rows(folded(*rows))
    cache.refresh()
    moving, stable = cache.groups()["moving"], cache.groups()["stable"]
    assert [(one.client_id, one.client_host, one.process_id, one.tasks) for one in moving.unsettled] == [
        ("slow", "10.0.0.1", "slow-process", ("0_1",)),
        ("waits", "10.0.0.1", "waits-process", ("0_1",)),
    ]
    assert (moving.unsettled_count, moving.unsettled[0].updated_at) == (2, NOW)
    assert (stable.unsettled, stable.unsettled_count) == ((), 0)


def assigned_at(cache: GroupCache) -> list[datetime]:
    history = cache.histories().get("a")
    return [one.at for one in history.assignments] if history else []


def test_events_are_kept_for_the_window_and_rebalances_counted_from_the_start(
    cache: GroupCache, clock: SimpleNamespace
) -> None:
    cache.refresh()
    clock.time = at(5)
    events = [rebalance(at(-121)), rebalance(at(-2)), rebalance(at(1), old=None), rebalance(at(2)), rebalance(None)]
    cache.on_rows(folded(row("a", 1, events=events), row("b", 1, events=[{**rebalance(at(3)), "kind": "topology"}])))
    cache.on_rows(folded(row("a", 2, events=[rebalance(at(2)), rebalance(at(4))])))  # the first is a repetition
    cache.refresh()
    assert assigned_at(cache) == [at(-2), at(2), at(4)]
    assert cache.rebalances_total("a") == 2
    assert "b" not in cache.histories()

    clock.time = at(123)
    cache.refresh()
    assert assigned_at(cache) == [at(4)]
    clock.time = at(125)
    cache.refresh()
    assert assigned_at(cache) == []
    assert cache.rebalances_total("a") == 2


def test_an_event_that_a_later_batch_retracts_is_removed(cache: GroupCache) -> None:
    empty = event(at(0), "state", "Stable", "Empty", offset=7)
    cache.on_rows(folded(row("a", 7, events=[empty])))
    cache.refresh()
    assert [one.new for one in cache.histories()["a"].states] == ["Empty"]
    stable = event(at(0), "state", "Stable", "Reconciling", offset=9)
    cache.on_rows(folded(row("a", 9, retracted=[{**empty, "new": None}], events=[stable])))
    cache.refresh()
    assert [one.new for one in cache.histories()["a"].states] == ["Reconciling"]


def test_earlier_events_are_read_from_the_tables_once(
    warehouse: Path, cache: GroupCache, clock: SimpleNamespace
) -> None:
    store(warehouse, row("a"))
    add_events(
        warehouse, ("a", rebalance(at(-150))), ("a", rebalance(at(-5))), ("a", rebalance(at(-9))), ("x", rebalance(NOW))
    )
    add_events(warehouse, ("a", rebalance(at(-8), old=None)), ("a", {**rebalance(at(-7)), "kind": "group_epoch"}))
    add_events(warehouse, ("a", rebalance(at(-3))), cluster="other")
    cache.refresh()
    assert assigned_at(cache) == [at(-9), at(-5)]
    assert [one.cause for one in cache.histories()["a"].assignments] == ["member_joined"] * 2
    assert cache.rebalances_total("a") == 0

    clock.time = at(1)
    add_events(warehouse, ("a", rebalance(at(1))))
    cache.on_rows(folded(row("a", 2, events=[rebalance(at(1))])))
    cache.on_bulk_change()
    cache.refresh()
    assert assigned_at(cache) == [at(-9), at(-5), at(1)]
    assert cache.rebalances_total("a") == 1


def test_why_a_group_was_not_ready_is_known_for_days(warehouse: Path, cache: GroupCache) -> None:
    store(warehouse, row("a"))
    kinds = ((16, "not_ready_reason"), (14, "not_ready_reason"), (14, "state"))
    add_events(warehouse, *(("a", event(NOW - timedelta(days), kind, None, "Empty")) for days, kind in kinds))
    cache.refresh()
    found = cache.histories()["a"]
    assert ([one.at for one in found.reasons], found.states) == ([NOW - timedelta(days=14)], ())


def test_the_times_of_a_broker_whose_clock_is_wrong_are_corrected(
    health: JobState, cache: GroupCache, clock: SimpleNamespace
) -> None:
    health.nothing_new(at(-0.1))
    cache.refresh()
    behind, ahead = at(-60), at(60)
    emptied = event(behind, "state", "Stable", "Empty", offset=2)
    cache.on_rows(folded(row("a", 2, "Empty", state_since=behind, events=[emptied]), row("b", 2, state_since=ahead)))
    cache.refresh()
    assert cache.groups()["a"].state_since == cache.histories()["a"].states[0].at == at(-0.1)
    assert cache.groups()["b"].state_since == NOW

    clock.time = at(9)
    cache.on_rows(folded(row("a", 3, "Empty", state_since=behind)))  # the same spell
    cache.refresh()
    assert cache.groups()["a"].state_since == at(-0.1)
    cache.on_rows(folded(row("a", 4, "Empty", state_since=at(8.9))))
    cache.refresh()
    assert cache.groups()["a"].state_since == at(8.9)


# --- Groups with the classic protocol ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_small", [True, False], ids=["small batch", "large batch"])
def test_a_group_with_the_classic_protocol_is_in_the_cache_and_one_of_other_clients_is_not(
    warehouse: Path, cache: GroupCache, is_small: bool
) -> None:
    classic = {"group_type": "classic", "protocol": "classic", "state": "Unknown"}

    def write(*rows: dict[str, Any]) -> None:
        replace_rows(warehouse, "groups", *rows)
        if is_small:
            cache.on_rows(folded(*rows))
        else:
            cache.on_bulk_change()
        cache.refresh()

    def found() -> dict[str, tuple[str, str]]:
        return {name: (one.protocol, one.state) for name, one in cache.groups().items()}

    write(row("s"), row("c", 4, **classic), row("taken over", 5, group_type="classic"))
    assert {name: one for name, one in found().items() if one[1] != "Dead"} == {
        "s": ("streams", "Stable"),
        "c": ("classic", "Unknown"),
    }
    write(row("s", 7, **classic), row("c", 8))
    assert found() == {"s": ("classic", "Unknown"), "c": ("streams", "Stable")}
    write(row("s", 9, **classic | {"state": "Dead"}), row("c", 8))
    assert found() == {"s": ("classic", "Dead"), "c": ("streams", "Stable")}
    cache.refresh()
    assert found() == {"c": ("streams", "Stable")}

"""The mirror of the groups: against tables written by delta-rs, and batches as the stream hands them over."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming_app.alerts import mirror as module
from streaming_app.alerts.mirror import Mirror
from streaming_app.job.folding import FOLDED_DDL
from streaming_app.serve.warehouse import WarehouseError
from tests.tables import arrow_schema, arrow_type, make_warehouse

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
WINDOW = timedelta(hours=1)
EVENTS = pa.field("events", arrow_type(next(part for part in FOLDED_DDL.split(", ") if "events array" in part)[7:]))
FOLDED = arrow_schema("groups").append(EVENTS)


def row(group_id: str | None, offset: int = 1, state: str = "Stable", **others: Any) -> dict[str, Any]:
    """A folded row."""
    return {
        "cluster": "default",
        "group_id": group_id,
        "group_type": "streams",
        "state": state,
        "state_since": NOW,
        "last_offset": offset,
        "members": [],
        "events": [],
    } | others


def folded(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), FOLDED)


def rebalance(at: datetime | None, old: str | None = "1") -> dict[str, Any]:
    return {"at": at, "kind": "assignment_epoch", "member_id": None, "old": old, "new": "2", "offset": 1}


def member(name: str, state: str, timeout: int | None) -> dict[str, Any]:
    return {
        "member_id": f"{name}-id",
        "member_state": state,
        "client_id": name,
        "client_host": "/10.0.0.1",
        "rebalance_timeout_ms": timeout,
    }


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_warehouse(tmp_path_factory.mktemp("empty"))


@pytest.fixture
def warehouse(empty: Path, tmp_path: Path) -> Path:
    return shutil.copytree(empty, tmp_path / "warehouse")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def mirror(warehouse: Path, clock: Clock) -> Mirror:
    return Mirror(warehouse, "default", WINDOW, clock)


def store(warehouse: Path, *rows: dict[str, Any]) -> None:
    """Put these rows in place of all."""
    table = pa.Table.from_pylist(list(rows), arrow_schema("groups"))
    write_deltalake(str(warehouse / "groups"), table, mode="overwrite")


def tell(warehouse: Path, *events: tuple[str, dict[str, Any]], cluster: str = "default") -> None:
    rows = [{"cluster": cluster, "group_id": group_id, "source_partition": 0, **event} for group_id, event in events]
    write_deltalake(
        str(warehouse / "group_events"), pa.Table.from_pylist(rows, arrow_schema("group_events")), mode="append"
    )


def states(mirror: Mirror) -> dict[str, str]:
    mirror.refresh()
    return {name: group.state for name, group in mirror.groups().items()}


def test_the_first_look_reads_the_groups_of_this_cluster_that_live(warehouse: Path, mirror: Mirror) -> None:
    store(warehouse, row("a"), row("b", state="Empty"), row("gone", state="Dead"), row("c") | {"cluster": "other"})
    assert mirror.groups() == {}
    assert states(mirror) == {"a": "Stable", "b": "Empty"}


def test_a_batch_shows_at_the_next_look_and_not_before(mirror: Mirror) -> None:
    mirror.refresh()
    mirror.batch(folded(row("a", state="NotReady", not_ready_reason="MISSING_SOURCE_TOPICS: orders")))
    assert mirror.groups() == {}
    mirror.refresh()
    assert mirror.groups()["a"].not_ready_reason == "MISSING_SOURCE_TOPICS: orders"
    assert mirror.groups()["a"].state_since == NOW


def test_what_somebody_holds_does_not_change(mirror: Mirror) -> None:
    mirror.refresh()
    held = mirror.groups()
    mirror.batch(folded(row("a")))
    mirror.refresh()
    assert held == {}
    with pytest.raises(TypeError):
        held["b"] = mirror.groups()["a"]  # type: ignore[index]


def test_an_older_row_replaces_none_and_one_of_the_same_offset_does(mirror: Mirror) -> None:
    mirror.refresh()
    mirror.batch(folded(row("a", 7, "Stable"), row("b", 7, "NotReady")))
    mirror.batch(folded(row("a", 6, "Assigning"), row("b", 7, "NotReady", not_ready_reason="found out later")))
    assert states(mirror) == {"a": "Stable", "b": "NotReady"}
    assert mirror.groups()["b"].not_ready_reason == "found out later"


def test_a_table_read_anew_replaces_all_but_what_was_queued_and_is_newer(warehouse: Path, mirror: Mirror) -> None:
    store(warehouse, row("reset", 90), row("left", 5))
    mirror.refresh()
    store(warehouse, row("reset", 3, "Empty"), row("newer", 10), row("same", 10, "Empty"))
    mirror.batch(folded(row("newer", 11, "Assigning"), row("same", 10, "Assigning")))
    mirror.changed()
    assert states(mirror) == {"reset": "Empty", "newer": "Assigning", "same": "Empty"}


def test_rows_of_undecodable_records_alone_are_passed_over(mirror: Mirror) -> None:
    mirror.batch(folded(row(None), row("a")))
    assert states(mirror) == {"a": "Stable"}


@pytest.mark.parametrize("large", [False, True], ids=["small batch", "large batch"])
def test_a_deleted_group_is_dead_for_one_look_and_then_forgotten(
    warehouse: Path, mirror: Mirror, *, large: bool
) -> None:
    store(warehouse, row("a", 1), row("b", 1))
    mirror.refresh()
    dead = row("a", 2, "Dead", deleted_at=NOW, events=[rebalance(NOW)])
    if large:
        store(warehouse, dead, row("b", 1), row("never known", 1, "Dead"))
        mirror.changed()
    else:
        mirror.batch(folded(dead))
    assert states(mirror) == {"a": "Dead", "b": "Stable"}
    assert states(mirror) == {"b": "Stable"}
    assert mirror.rebalances("a") == ()
    assert mirror.rebalances_total("a") == 0
    mirror.changed()
    assert states(mirror) == ({"b": "Stable"} if large else {"a": "Stable", "b": "Stable"})


@pytest.mark.parametrize("large", [False, True], ids=["small batch", "large batch"])
def test_members_are_looked_at_only_while_tasks_move(warehouse: Path, mirror: Mirror, *, large: bool) -> None:
    members = [member("slow", "UNREVOKED_TASKS", 45_000), member("waits", "UNRELEASED_TASKS", 60_000)]
    rows = [row("moving", state="Reconciling", members=members), row("still", members=members)]
    if large:
        store(warehouse, *rows)
    else:
        mirror.batch(folded(*rows))
    mirror.refresh()
    moving, still = mirror.groups()["moving"], mirror.groups()["still"]
    assert moving.rebalance_timeout_ms == 60_000
    assert moving.not_revoking == ("10.0.0.1 slow (slow-id)",)
    assert moving.awaiting == ("10.0.0.1 waits (waits-id)",)
    assert (still.rebalance_timeout_ms, still.not_revoking, still.awaiting) == (None, (), ())


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def test_rebalances_are_remembered_for_the_window_and_counted_from_the_start(mirror: Mirror, clock: Clock) -> None:
    mirror.refresh()
    told = [rebalance(at(-61)), rebalance(at(-2)), rebalance(at(1), old=None), rebalance(at(2)), rebalance(None)]
    mirror.batch(folded(row("a", 1, events=told), row("b", 1, events=[{**rebalance(at(3)), "kind": "state"}])))
    mirror.batch(folded(row("a", 2, events=[rebalance(at(2)), rebalance(at(4))])))  # the first was told before
    mirror.refresh()
    assert mirror.rebalances("a") == (at(-2), at(2), at(4))
    assert mirror.all_rebalances() == {"a": (at(-2), at(2), at(4))}
    assert mirror.rebalances_total("a") == 2
    assert mirror.rebalances("b") == ()

    clock.time = at(63)
    mirror.refresh()
    assert mirror.rebalances("a") == (at(4),)
    clock.time = at(65)
    mirror.refresh()
    assert mirror.rebalances("a") == ()
    assert mirror.rebalances_total("a") == 2


def test_rebalances_of_before_are_read_from_history_once(warehouse: Path, mirror: Mirror) -> None:
    store(warehouse, row("a"))
    tell(
        warehouse, ("a", rebalance(at(-90))), ("a", rebalance(at(-5))), ("a", rebalance(at(-9))), ("x", rebalance(NOW))
    )
    tell(warehouse, ("a", rebalance(at(-9), old=None)), ("a", {**rebalance(at(-9)), "kind": "group_epoch"}))
    tell(warehouse, ("a", rebalance(at(-3))), cluster="other")
    mirror.refresh()
    assert mirror.rebalances("a") == (at(-9), at(-5))
    assert mirror.rebalances_total("a") == 0

    tell(warehouse, ("a", rebalance(at(1))))
    mirror.batch(folded(row("a", 2, events=[rebalance(at(1))])))
    mirror.changed()
    mirror.refresh()
    assert mirror.rebalances("a") == (at(-9), at(-5), at(1))
    assert mirror.rebalances_total("a") == 1


def test_of_a_storm_the_newest_rebalances_are_kept(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REBALANCES_KEPT", 3)
    mirror.batch(folded(row("a", events=[rebalance(at(minutes)) for minutes in range(5)])))
    mirror.refresh()
    assert mirror.rebalances("a") == (at(2), at(3), at(4))
    assert mirror.rebalances_total("a") == 5


def test_a_queue_that_nobody_drains_is_given_up_for_the_table(
    warehouse: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUEUED_ROWS", 2)
    mirror.refresh()
    store(warehouse, row("a", 4, "Empty"))
    for offset in range(1, 5):
        mirror.batch(folded(row("a", offset)))
    assert sum(table.num_rows for table in mirror._queue) <= 2
    assert states(mirror) == {"a": "Empty"}


def test_tables_that_cannot_be_read_lose_nothing(warehouse: Path, mirror: Mirror) -> None:
    store(warehouse, row("a"), row("b", 2))
    (warehouse / "groups").rename(warehouse / "away")
    mirror.batch(folded(row("b", 2)))
    with pytest.raises(WarehouseError):
        mirror.refresh()
    (warehouse / "away").rename(warehouse / "groups")
    assert states(mirror) == {"a": "Stable", "b": "Stable"}

"""The query of docs/lag.md tells which groups of any type have stopped, from what offsets prove alone."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from streaming_app.lag.ends import LogEnds
from streaming_app.lag.model import NO_TASKS, Commit, GroupTasks
from streaming_app.lag.tracker import LagTracker
from streaming_app.tables.lag_tables import LagTables
from streaming_app.tables.reader import WarehouseReader
from tests.support.documents import DOCS, code_blocks
from tests.support.lag_harness import TASKS
from tests.support.warehouses import make_warehouse

(QUERY,) = (block.text for block in code_blocks(DOCS / "lag.md", "sql"))
STEP, PASSES = 30.0, 30
NOBODY = replace(NO_TASKS, has_members=False)

Offsets = Callable[[int], tuple[int | None, int, int]]
"""Number of a pass -> what is committed, the last stable offset and the end of the log; None: nothing is committed."""
GROUPS: dict[str, tuple[GroupTasks, Offsets, bool]] = {
    "streams, hangs": (TASKS, lambda n: (min(n, 5), n + 1, n + 1), True),
    "consumer, hangs": (NO_TASKS, lambda n: (min(n, 5), n + 1, n + 1), True),
    "consumer, without members": (NOBODY, lambda n: (5, n + 5, n + 5), True),
    "streams, never committed": (TASKS, lambda n: (None, n, n), True),
    "consumer, without members, before an open transaction": (NOBODY, lambda n: (5, 5, n + 5), True),
    "hangs since a moment": (NO_TASKS, lambda n: (min(n, 22), n + 1, n + 1), False),
    "moves, and is far behind": (NO_TASKS, lambda n: (n, 1_000 + n, 1_000 + n), False),
    "moves from time to time": (NO_TASKS, lambda n: (n - n % 8, n + 1, n + 1), False),
    "nothing comes": (NO_TASKS, lambda _: (5, 5, 5), False),
    "records have just come": (NO_TASKS, lambda n: (5, 5 + max(0, n - 26), 5 + max(0, n - 26)), False),
    "streams, before an open transaction": (TASKS, lambda n: (5, 5, n + 5), False),
    "left over": (replace(TASKS, subtopology_of={"another": "0"}), lambda n: (5, n + 5, n + 5), False),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Run the query after some minutes in which these groups read; return since when it says that each has stopped."""
    path, tracker, began = make_warehouse(tmp_path_factory.mktemp("w")), LagTracker(), time.time() - STEP * PASSES
    moved: dict[str, tuple[int | None, float]] = {}
    for n in range(PASSES):
        now, commits, ends, tasks = began + STEP * n, {}, {}, {}
        for group_id, (of_group, offsets, _) in GROUPS.items():
            committed, stable, end = offsets(n)
            if moved.get(group_id, (-1, 0.0))[0] != committed:
                moved[group_id] = committed, now
            known = of_group.subtopology_of
            topic = group_id if known is None or "another" in known else "orders"
            key = (group_id, f"{group_id} {topic}", 0)
            commits[key] = Commit(committed, "id", 0, None if committed is None else moved[group_id][1])
            ends[key[1:]] = LogEnds(end, 0, stable, "id", now, now, 1, now)
            named = known and {key[1] if name == "orders" else name: one for name, one in known.items()}
            tasks[group_id] = replace(of_group, subtopology_of=named)
        rows = tracker.observe(commits, ends, tasks, now)
    LagTables(path, "default").replace_lag(rows)
    found = WarehouseReader(path).rows(QUERY)
    return {one["group_id"]: one["stopped_since"].timestamp() - began for one in found}


@pytest.mark.parametrize("group_id", GROUPS)
def test_the_query_of_the_documents_tells_who_has_stopped(group_id: str, told: dict[str, float]) -> None:
    assert (group_id in told) is GROUPS[group_id][2]


def test_it_says_since_when(told: dict[str, float]) -> None:
    assert {round(told[one] / STEP) for one in ("streams, hangs", "consumer, hangs")} == {5}

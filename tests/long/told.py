"""What a job tells of the groups of written histories, for the tree of this process or another one, such as 0.3.0's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from streaming_app.alerts.catalog import HEALTH_RULES
from streaming_app.tables.reader import WarehouseReader
from tests.support.job_runner import STREAMS_GROUPS
from tests.support.written_history import WrittenHistory

HERE = Path(__file__).parents[2]
_SECONDS = 1_800.0


def run_tree(tree: Path, server: str, warehouse: Path, *options: str) -> None:
    """Let the job of a source tree read everything, and judge it once. AssertionError: it failed."""
    command = [*STREAMS_GROUPS, "run", "--once", "--bootstrap-server", server, "--warehouse", str(warehouse), *options]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, (done.stdout[-2_000:], done.stderr[-2_000:])


class Told(NamedTuple):
    """What a job told of groups that are Down or Stalled, and of those that are well."""

    told: list[str]
    missed: list[str]
    false: list[str]
    """Each a line with group, history, and what the job says of the group."""

    def __str__(self) -> str:
        lines = [f"missed: {one}" for one in self.missed] + [f"false: {one}" for one in self.false]
        return "\n".join([f"{len(self.told)} told, {len(self.missed)} missed, {len(self.false)} false", *lines])


def told(histories: Sequence[WrittenHistory], warehouse: Path, cluster: str = "default") -> Told:
    """Compare the open problems in a warehouse with what the histories are to bring."""
    reader, of_cluster = WarehouseReader(warehouse), f"WHERE cluster = '{cluster}'"
    health = {one["group_id"]: one for one in reader.rows(f"SELECT * FROM group_health {of_cluster}")}
    rules = ", ".join(f"'{one}'" for one in HEALTH_RULES)
    opened = (
        f"SELECT group_id FROM alerts {of_cluster} AND ended_at IS NULL AND opened_at IS NOT NULL AND rule IN ({rules})"
    )
    open_groups = {one["group_id"] for one in reader.rows(opened)}
    found = Told([], [], [])
    for history in histories:
        for group_id in sorted(history.bad | history.well):
            said = health.get(group_id, {"verdict": None, "why": None})
            line = f"{group_id} ({history.history.name}): {said['verdict']}: {said['why']}"
            if group_id in history.bad:
                (found.told if group_id in open_groups else found.missed).append(line)
            elif group_id in open_groups:
                found.false.append(line)
    return found

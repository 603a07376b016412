"""What a job tells of the groups of written histories, for the tree of this process or another one, such as 0.3.0's."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from streaming_app.alerts.catalog import HEALTH_RULES
from tests.support.job_runner import STREAMS_GROUPS
from tests.support.written_history import WrittenHistory

HERE = Path(__file__).parents[2]
_SECONDS = 1_800.0


def run_tree(tree: Path, server: str, warehouse: Path, *options: str) -> None:
    """Let the job of a source tree read everything, and judge it once. AssertionError: it failed."""
    _run(tree, "run", "--once", "--bootstrap-server", server, "--warehouse", warehouse, *options)


def command(tree: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of a source tree to its end."""
    called, env = [*STREAMS_GROUPS, *map(str, arguments)], environment(tree)
    return subprocess.run(called, cwd=tree, env=env, capture_output=True, text=True, timeout=_SECONDS, check=False)


def environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree)}


def _run(tree: Path, *arguments: object) -> str:
    """Return what a command of a source tree prints. AssertionError: it failed."""
    done = command(tree, *arguments)
    assert done.returncode == 0, (done.stdout[-3_000:], done.stderr[-3_000:])
    return done.stdout


class Told(NamedTuple):
    """What a job told of groups that are Down or Stalled, and of those that are well."""

    told: list[str]
    missed: list[str]
    false: list[str]
    """Each a line with group, history, and what the job says of the group."""

    def __str__(self) -> str:
        lines = [f"missed: {one}" for one in self.missed] + [f"false: {one}" for one in self.false]
        return "\n".join([f"{len(self.told)} told, {len(self.missed)} missed, {len(self.false)} false", *lines])


def told(histories: Sequence[WrittenHistory], warehouse: Path, cluster: str = "default", tree: Path = HERE) -> Told:
    """Compare the open alerts in a warehouse, which its own tree reads, with what the histories are to bring."""

    def rows(query: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(_run(tree, "sql", "--json", "--warehouse", warehouse, query))
        return found

    of_cluster = f"WHERE cluster = '{cluster}'"
    health = {one["group_id"]: one for one in rows(f"SELECT group_id, verdict, why FROM group_health {of_cluster}")}
    rules = ", ".join(f"'{one}'" for one in HEALTH_RULES)
    opened = (
        f"SELECT group_id FROM alerts {of_cluster} AND ended_at IS NULL AND opened_at IS NOT NULL AND rule IN ({rules})"
    )
    open_groups = {one["group_id"] for one in rows(opened)}
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

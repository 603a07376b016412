"""Jobs that follow each other in a warehouse, for tests of the commits that an earlier job may still make."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streaming_app.config.settings import JobConfig
from streaming_app.job.owner import owning
from streaming_app.job.stopping import StopRequestedError
from streaming_app.tables.definitions import tables
from streaming_app.tables.fence import Fence, application_of
from streaming_app.tables.location import Location
from tests.support.waiting import wait_until

CLUSTER = "default"
OLD, NEW = 1, 2
"""The terms of the jobs."""


def race(warehouse: Location, directory: Path, jobs: int) -> list[int]:
    """Return the terms of those of the jobs, which start at the same moment and have no lock in common, that own it."""
    begin, waiting = threading.Barrier(jobs), list[threading.Event]()

    def start(number: int) -> int | None:
        stop = threading.Event()

        def give_up(_: str) -> None:
            waiting.append(stop)
            stop.set()

        values = {"bootstrap_server": "h:1", "warehouse": warehouse, "state_dir": directory / str(number)}
        begin.wait()
        try:
            with owning(JobConfig.model_validate(values), give_up, stop) as owner:
                assert wait_until(lambda: len(waiting) == jobs - 1)
                return owner.term
        except StopRequestedError:
            return None

    with ThreadPoolExecutor(jobs) as threads:
        return [term for term in threads.map(start, range(jobs)) if term is not None]


def claimed(warehouse: Path, term: int) -> Fence:
    """Return the fence of a job that has just started."""
    fence = Fence(CLUSTER, term)
    claim(warehouse, fence)
    return fence


def claim(warehouse: Path, fence: Fence) -> None:
    """Let the job of this fence start."""
    fence.claim(Location.of(warehouse) / one.name for one in tables())


def terms(warehouse: Path, name: str) -> list[int | None]:
    """Return the term of each commit that claims a table or changes its rows, in order; None for a commit without."""
    log = sorted((warehouse / name / "_delta_log").glob("*.json"))
    commits = [[json.loads(line) for line in commit.read_text("utf-8").splitlines()] for commit in log]
    return [_term(actions) for actions in commits if _changes(actions) is not False]


def _changes(actions: list[dict[str, dict[str, str]]]) -> bool | None:
    """Return whether a commit changes rows; None if it has neither files nor other actions of that kind."""
    if any(
        "metaData" in action
        or action.get("txn", {}).get("appId", "").startswith("streams-groups-")  # a note of the maintenance
        or action.get("commitInfo", {}).get("operation", "").startswith("VACUUM")
        for action in actions
    ):
        return False
    changes = [bool(files["dataChange"]) for action in actions for files in action.values() if "dataChange" in files]
    return any(changes) if changes else None


def _term(actions: list[dict[str, dict[str, str]]]) -> int | None:
    versions = [
        int(action["txn"]["version"])
        for action in actions
        if action.get("txn", {}).get("appId") == application_of(CLUSTER)
    ]
    return versions[0] >> 40 if versions else None


def assert_fenced(warehouse: Path) -> None:
    """Assert for each table that after the first commit with a term, every commit has that term or a later one."""
    for one in tables():
        found = terms(warehouse, one.name)
        begun = next((place for place, term in enumerate(found) if term), len(found))
        of_jobs = [-1 if term is None else term for term in found[begun:]]
        assert of_jobs, one.name
        assert of_jobs == sorted(of_jobs), (one.name, found)

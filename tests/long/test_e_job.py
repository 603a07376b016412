"""Relation E for the whole job: an error once at each of its sites leaves the tables as if nothing had been.

The job is the real one, in a process as a user starts it, on a broker whose log is at rest. See `faults/raised.py`.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streaming_app.sandbox.broker import LocalBroker
from tests.exception_lint import ROOT, listed
from tests.long.bed import Bed, in_batches_of
from tests.long.faults.operations import Operations
from tests.long.faults.raised import ERRORS, OTHERS, PLACES, with_sites
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]
TABLES = {
    "groups": "group_id",
    "group_events": 'group_id, "offset", kind, member_id',
    "topologies": 'group_id, "offset"',
    "quarantine": '"partition", "offset"',
    "offset_commits": 'group_id, topic, "partition", last_offset',
    "group_records": "group_id, record_type, member_id, last_offset",
}
"""The tables of which the log alone decides, and the order of their rows."""
_DAY_MS = 86_400_000
_RESTING = {
    "group.streams.max.session.timeout.ms": "86400000",
    "group.streams.session.timeout.ms": "86400000",
    "offsets.retention.check.interval.ms": "86400000",
    "log.cleaner.enable": "false",
}
_SETUP = "import os; os.environ['STREAMS_GROUPS_OFFSETS__TRIGGER'] = '0.5'; from tests.long.faults import raised; "
_SOON = "from tests.long.faults.injected import retry_soon; retry_soon(); "
_OPERATIONS, _IN_A_BATCH = 150, 150
_EARLY = 20  # of the calls of a site: what services do again and again does not come to an end


class Job(Bed):
    """Jobs one after the other, each with a new warehouse, of groups to which nothing happens any more."""

    def _prepare(self) -> None:
        operations = Operations(self.client, self.server, 7, rebalance_timeout_ms=_DAY_MS)
        for _ in range(_OPERATIONS):
            operations.step()
        self.undisturbed = ""

    def start_job(self, *options: str, setup: str = "") -> None:
        super().start_job(*options, setup=setup + in_batches_of(_IN_A_BATCH))

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        return {name: self.rows(f"SELECT * FROM {name} ORDER BY {order}") for name, order in TABLES.items()}

    def play(self, *plan: object) -> Path:
        """Let a new job read everything, with this plan of an error; return where it notes what it reached."""
        self._close_job()
        directory = self.directory / f"case-{sum(1 for _ in self.directory.glob('case-*'))}"
        directory.mkdir()
        self.warehouse = self.disk.directory / directory.name
        self._setup = f"{_SETUP}raised.plant({', '.join(map(repr, (str(directory), *plan)))}); {_SOON}"
        self.job = self.new_job()
        self.start_job()
        self.settle()
        return directory


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    directory = tmp_path_factory.mktemp("errors")
    with Job(directory, LocalBroker(directory / "broker", properties=_RESTING), megabytes=1_000) as running:
        yield running


@pytest.fixture(scope="module")
def whole(job: Job) -> tuple[dict[str, list[dict[str, Any]]], Counter[str]]:
    """What a job that nothing disturbs writes, and how often it comes to each site."""
    reached = Counter((job.play() / "reached").read_text().split("\n"))
    tables = job.tables()
    assert all(tables[name] for name in ("groups", "group_events", "topologies", "group_records"))
    assert {one for one in OTHERS.values() if one not in reached} == set()
    return tables, reached


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("site", sorted({*listed(), *PLACES}))
def test_an_error_once_at_a_site_of_a_job_changes_no_table(
    job: Job, whole: tuple[dict[str, list[dict[str, Any]]], Counter[str]], site: str, error: str
) -> None:
    tables, reached = whole
    if not reached[site]:
        pytest.skip("a job that nothing disturbs does not come here")
    call = Random(f"{site} {error}").randrange(min(reached[site], _EARLY))  # noqa: S311 - no secret
    directory = job.play(site, call, error)
    assert wait_until((directory / "raised").exists), (site, call)
    job.settle()
    assert wait_until(lambda: job.tables() == tables), (site, call, job.job.output[-3_000:])


def test_every_listed_place_has_its_site() -> None:
    parts = (part for file in ROOT.rglob("*.py") for part in ast.walk(with_sites(file)))
    calls = [one for one in parts if isinstance(one, ast.Call) and ast.unparse(one.func) == "_reach_site"]
    assert {ast.literal_eval(one.args[0]) for one in calls} == {*listed(), *PLACES}

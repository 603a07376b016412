"""Relation G: ten and a hundred times the members cost the commands at most ten and a hundred times as much."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from streaming_app.cli.main import main
from streaming_app.queries.groups import format_tasks, member_rows
from streaming_app.queries.topics import endpoint_rows
from streaming_app.tables.reader import Row
from streaming_app.web.access import Access
from streaming_app.web.page import Page
from streaming_app.web.snapshot import SnapshotSource
from tests.histories.bed import run
from tests.histories.history import STATE, History, do, start, stop
from tests.relations.scaled import is_in_proportion, out_of_proportion
from tests.relations.scaled_warehouse import write_scaled
from tests.support.sample_groups import RICH, clock


def _group(members: int) -> Row:
    """Return a row of `groups` with so many members, of which each has five tasks."""
    return {
        "group_id": "orders",
        "assignment_epoch": 7,
        "members": [
            dict.fromkeys(_MEMBER) | {"member_id": f"m-{n}", "member_epoch": 7, "user_endpoint": f"h:{n}"}
            for n in range(members)
        ],
        "assignments": [
            {"member_id": f"m-{n}", "role": "active", "subtopology_id": "0", "partition": n * 5 + one}
            | {"current": True, "target": True, "pending_revocation": False}
            for n in range(members)
            for one in range(5)
        ],
    }


_MEMBER = (
    *("process_id", "client_id", "client_host", "instance_id", "rack_id", "user_endpoint"),
    *("client_tags", "topology_epoch", "member_state"),
)


def _members(size: int) -> Callable[[], object]:
    groups = [_group(size)]
    return lambda: member_rows(groups, verbose=True)


def _endpoints(size: int) -> Callable[[], object]:
    groups = [_group(size)]
    return lambda: endpoint_rows(groups, {"orders": []})


@pytest.mark.parametrize("times", [10, 100])
@pytest.mark.parametrize("rows", [_members, _endpoints])
def test_members_are_described_in_proportion_to_their_number(
    rows: Callable[[int], Callable[[], object]], times: int
) -> None:
    assert is_in_proportion(rows, times=times)


def test_the_relation_sees_work_that_is_quadratic() -> None:
    assert not is_in_proportion(lambda size: lambda: [[b for b in range(size) if b == a] for a in range(size)])


def test_the_relation_of_modules_sees_one_that_is_quadratic() -> None:
    def prepare(size: int) -> Callable[[], object]:
        rows = [{"subtopology_id": f"{n}", "role": "active", "partition": 0} for n in range(size)]
        return lambda: [format_tasks(rows) for _ in rows]

    assert out_of_proportion(prepare, 20).keys() == {"queries/groups.py"}


def _played(groups: int = 1, members: int = 1, partitions: int = 2, commits: int = 1) -> Callable[[], object]:
    """Play a history of ten minutes, in which half of the groups lose their members."""
    names = [f"app{n}" for n in range(groups)]
    operations = []
    for name in names:
        instances = [f"{name}-i{n}" for n in range(members)]
        operations += start(instances, 1.0, 0.01, group=name, **STATE)
        operations += do(5.0, "read", group=name, rate=10.0)
        operations += stop(instances, 200.0, 0.01) if name.endswith("0") else []
    in_order = tuple(sorted(operations, key=lambda one: one.at))
    history = History("Scaled", in_order, 600.0 * commits, begins=200.0, topics={"in": partitions, "log": partitions})
    return lambda: run(history, only_changes=True)


@pytest.mark.parametrize("what", ["groups", "members", "partitions", "commits"])
@pytest.mark.slow
def test_fold_lag_verdicts_and_alerts_take_at_most_in_proportion(what: str) -> None:
    least = {"groups": 4, "members": 4, "partitions": 4, "commits": 1}[what]
    assert out_of_proportion(lambda size: _played(**{what: size}), least) == {}


_BY = ("group", "subtopology", "task", "member", "process", "host", "topic", "partition")
_PARTS = ("state", "members", "topology", "offsets", "copies")
COMMANDS = (
    *(f"list{options}" for options in ("", " --state", " --health", " --type all", " --json", " --type all --state")),
    *(f"lag --by {by}" for by in _BY),
    *("lag --json", "alerts --resolved --pending", "alerts --resolved --json", "status"),
    *(f"describe --all-groups --{part}{more}" for part in _PARTS for more in ("", " --verbose")),
    *("describe --all-groups --json", f"describe {RICH} --description"),
    *(f"why {RICH}{options}" for options in ("", " --json")),
    *(f"history {RICH}{options}" for options in ("", " --at 1d", " --json", " --topology", " --task 0_1")),
)


@pytest.fixture(scope="module")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    return cache(lambda what, times: write_scaled(tmp_path_factory.mktemp("scaled"), what, times))


@pytest.mark.parametrize("what", ["groups", "members", "partitions", "history"])
@pytest.mark.slow
def test_commands_take_at_most_in_proportion(warehouses: Callable[[str, int], Path], what: str) -> None:
    def prepare(command: str, times: int) -> Callable[[], object]:
        return lambda: _invoked(command, warehouses(what, times))

    found = {command: out_of_proportion(partial(prepare, command), 1) for command in COMMANDS}
    assert {command: modules for command, modules in found.items() if modules} == {}


def _invoked(command: str, warehouse: Path) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--warehouse", str(warehouse)])
    assert result.exit_code == 0, result.output


PAGES = (
    *("/", "/pipelines", "/alerts", "/graph?of=pipelines"),
    *(f"/{page}id={RICH}" for page in ("group?", "graph?", "graph?level=processors&")),
)


@pytest.mark.parametrize("what", ["groups", "members", "partitions", "history"])
@pytest.mark.slow
def test_the_data_of_pages_take_at_most_in_proportion(warehouses: Callable[[str, int], Path], what: str) -> None:
    def prepare(path: str, times: int) -> Callable[[], object]:
        def get() -> None:  # each page is made anew
            page = Page(SnapshotSource(warehouses(what, times), "default", clock), Access(), clock)
            TestClient(page.app, base_url="http://127.0.0.1").get(path).raise_for_status()

        return get

    found = {path: out_of_proportion(partial(prepare, path), 1) for path in PAGES}
    assert {path: modules for path, modules in found.items() if modules} == {}

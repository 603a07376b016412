"""Relation G for commands and pages: ten times the rows cost at most ten times as much."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from streaming_app.cli.main import main
from streaming_app.web.access import Access
from streaming_app.web.page import Page
from streaming_app.web.page_snapshot import SnapshotSource
from tests.relations.scaled import out_of_proportion
from tests.relations.scaled_warehouse import write_scaled
from tests.support.sample_groups import RICH, clock

_BY = ("group", "subtopology", "task", "member", "process", "host", "topic", "partition")
_PARTS = ("state", "members", "topology", "offsets", "copies")
COMMANDS = (
    *(f"list{options}" for options in ("", " --state", " --health", " --type all", " --json", " --type all --state")),
    *(f"lag --by {by}" for by in _BY),
    *("lag --json", "alerts --resolved --pending", "alerts --resolved --json", "status"),
    *(f"describe --all-groups --{part}{more}" for part in _PARTS for more in ("", " --verbose")),
    "describe --all-groups --json",
    *(f"why {RICH}{options}" for options in ("", " --json")),
    *(f"history {RICH}{options}" for options in ("", " --at 1d", " --json", " --topology", " --task 0_1")),
)


@pytest.fixture(scope="module")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    return cache(lambda what, times: write_scaled(tmp_path_factory.mktemp("scaled"), what, times))


@pytest.mark.parametrize("what", ["groups", "members", "partitions", "history"])
def test_commands_take_at_most_in_proportion(warehouses: Callable[[str, int], Path], what: str) -> None:
    def prepare(command: str, times: int) -> Callable[[], object]:
        return lambda: _invoked(command, warehouses(what, times))

    found = {command: out_of_proportion(partial(prepare, command), 1) for command in COMMANDS}
    assert {command: modules for command, modules in found.items() if modules} == {}


def _invoked(command: str, warehouse: Path) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--warehouse", str(warehouse)])
    assert result.exit_code == 0, result.output


_LEAST = 20
"""Times the sample: smaller pictures are not folded."""
PAGES = (
    *("/", "/alerts"),
    *(f"/{page}id={RICH}" for page in ("group?", "graph?", "graph?level=processors&")),
)


@pytest.mark.parametrize("what", ["groups", "members", "partitions", "history"])
def test_the_data_of_pages_take_at_most_in_proportion(warehouses: Callable[[str, int], Path], what: str) -> None:
    def prepare(path: str, times: int) -> Callable[[], object]:
        def get() -> None:  # each page is made anew
            page = Page(SnapshotSource(warehouses(what, times), "default", clock), Access(), clock)
            TestClient(page.app, base_url="http://127.0.0.1").get(path).raise_for_status()

        return get

    found = {path: out_of_proportion(partial(prepare, path), _LEAST) for path in PAGES}
    assert {path: modules for path, modules in found.items() if modules} == {}

"""Commands ask an object store for the tables that they read, each once, and for little else."""

import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from uuid import uuid4

import pytest

from tests.cli.commands import run
from tests.support.s3_server import S3Server, s3_server
from tests.support.sample_groups import write_sample


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        write_sample(server.root / "sample", datetime.now(timezone.utc), hostile=False)
        yield server


_OTHERS = "group_events group_records offset_commits"
TABLES = {
    "list": "alerts group_health_history broker_facts group_records groups offset_commits",
    "list --state": "alerts group_health_history broker_facts groups",
    "describe orders-enrichment": f"alerts group_health_history groups inputs lag {_OTHERS}",
    "describe orders-enrichment --state": f"alerts group_health_history broker_facts groups {_OTHERS}",
    "lag": "inputs lag",
    "alerts": "alerts",
}
"""What each command reads."""


@pytest.mark.parametrize("command", TABLES)
def test_a_command_opens_the_tables_that_it_reads_once(
    command: str, store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.use(monkeypatch.setenv)
    warehouse = uuid4().hex  # this process keeps tables that it opens again
    shutil.copytree(store.root / "sample", store.root / warehouse)
    before = len(store.requests())
    result = run(store.uri(warehouse), *command.split())
    assert result.exit_code == 0, result.output
    requests = store.requests()[before:]
    opened = sorted(key.split("/")[1] for _, key in requests if key.endswith("/_last_checkpoint"))
    assert opened == sorted(2 * TABLES[command].split())  # the second look shows that nothing was cleaned up meanwhile
    assert sum(kind == "LIST" for kind, _ in requests) == 2 * (command == "alerts")  # mutes and ends

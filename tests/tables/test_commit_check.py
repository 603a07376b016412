"""A warehouse in which a commit may overwrite another one is refused in one line, and may be allowed for one job."""

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest
from click.testing import CliRunner

from streaming_app.checks.result import FAILED, OK, WARNING, Result
from streaming_app.checks.warehouse import check_warehouse
from streaming_app.cli.main import main
from streaming_app.config.settings import JobConfig
from streaming_app.job.run import owned
from streaming_app.tables.commit_check import why_unsafe
from streaming_app.tables.location import Location
from tests.support.s3_server import S3Server, s3_server

NO_BROKER = "127.0.0.1:1"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(tmp_path, monkeypatch.setenv) as server:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        yield server


def commits(location: Location, *, single_writer: bool = False) -> Result:
    return next(r for r in check_warehouse(location, "default", single_writer=single_writer) if r.check == "commits")


@pytest.mark.slow
def test_a_store_that_ignores_the_condition_is_refused_by_check_and_run_unless_one_job_only_is_declared(
    store: S3Server,
) -> None:
    uri = store.uri(uuid4().hex)
    with store.ignoring_conditions():
        found, allowed = commits(Location.of(uri)), commits(Location.of(uri), single_writer=True)
        ran = CliRunner().invoke(main, ["run", "--bootstrap-server", NO_BROKER, "--warehouse", uri])
        config = JobConfig(bootstrap_server=NO_BROKER, warehouse=Location.of(uri), single_writer=True)
        lines = owned_lines(config)
    assert (found.status, allowed.status) == (FAILED, WARNING)
    assert found.text == f"{uri} lets a commit overwrite another one: it ignores If-None-Match"
    assert (ran.exit_code, ran.stderr.count("\n")) == (1, 1)
    assert f"Error: {found.text}; use another one, or set single_writer: true if only one job ever" in ran.stderr
    assert lines == [f"Warning: {found.text}. No second job may write it, since single_writer is true"]
    assert not any("check-" in key for key in written(store)), "nothing remains of the checks"


def owned_lines(config: JobConfig) -> list[str]:
    """Return what a job says until it owns its cluster."""
    lines = list[str]()
    with owned(config, lines.append, Event()):
        pass
    return lines


def written(store: S3Server) -> list[str]:
    return [file.relative_to(store.root).as_posix() for file in store.root.rglob("*") if file.is_file()]


@pytest.mark.slow
def test_a_store_that_respects_the_condition_is_not_refused(store: S3Server) -> None:
    place = Location.of(store.uri(uuid4().hex))
    assert [why_unsafe(place) for _ in range(2)] == [None] * 2
    assert commits(place).status == OK
    assert written(store) == []


def test_a_store_that_refuses_the_commits_of_the_check_is_one_line(store: S3Server) -> None:
    with store.refusing_commits(but_written=False):
        found = commits(Location.of(store.uri(uuid4().hex)))
    assert (found.status, "\n" in found.text) == (FAILED, False)
    assert "AccessDenied: as the test wants it" in found.text


WITHOUT_LINKS = """
import sys
from pathlib import Path
from streaming_app.config.settings import JobConfig
from streaming_app.errors import StorageError
from streaming_app.tables.location import Location
from streaming_app.tables.table_creation import create_missing
from tests.support.no_links import forbid_links
from tests.tables.test_commit_check import commits, owned_lines

forbid_links()
warehouse = Location.of(sys.argv[1])
print(commits(warehouse).line)
try:
    owned_lines(JobConfig(bootstrap_server="h:1", warehouse=warehouse))
except StorageError as error:
    print(error, [*warehouse.parent.path.iterdir()])
print(*owned_lines(JobConfig(bootstrap_server="h:1", warehouse=warehouse, single_writer=True)), sep="\\n")
create_missing(warehouse, ())
print([file.name for file in Path(sys.argv[1], "lag", "_delta_log").iterdir()])
"""


@pytest.mark.slow
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="forbids links by the numbers of x86-64's calls"
)
def test_a_file_system_without_hard_links_is_refused_by_check_and_run_unless_one_job_only_is_declared(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", WITHOUT_LINKS, tmp_path / "w"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0, ran.stderr
    checked, refused, warning, files = ran.stdout.splitlines()
    reason = f"{tmp_path} is in a file system without hard links (Operation not supported), which commits need"
    assert checked.startswith(f"commits: {reason}; use another one, or set single_writer: true"), checked
    assert refused.startswith(f"{reason}; use another one, or set single_writer: true if only one job ever"), refused
    assert refused.endswith(" []"), "nothing remains of the checks"
    assert warning == f"Warning: {reason}. No second job may write it, since single_writer is true"
    assert files == "['00000000000000000000.json']"

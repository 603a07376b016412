"""A warehouse in which a commit may overwrite another one is refused in one line, and may be allowed for one job."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
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
needs_filter = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="forbids links by the numbers of x86-64's calls"
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(tmp_path) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
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
    from threading import Event  # noqa: PLC0415

    lines = list[str]()
    with owned(config, lines.append, Event()):
        pass
    return lines


def written(store: S3Server) -> list[str]:
    return [file.relative_to(store.root).as_posix() for file in store.root.rglob("*") if file.is_file()]


@pytest.mark.slow
def test_a_store_that_respects_the_condition_is_not_refused(store: S3Server) -> None:
    place = Location.of(store.uri(uuid4().hex))
    assert [why_unsafe(place) for _ in range(5)] == [None] * 5
    assert commits(place).status == OK
    assert written(store) == []


def without_links(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.no_links", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@needs_filter
@pytest.mark.slow
def test_a_file_system_without_hard_links_is_refused_in_one_line_with_the_way_out(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    reason = f"{tmp_path} is in a file system without hard links (Operation not supported), which commits need; use an"
    options = ("--bootstrap-server", NO_BROKER, "--warehouse", warehouse)
    ran = without_links("streaming_app", "run", *options)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert ran.stderr.startswith(f"Error: {reason}")
    checked = json.loads(without_links("streaming_app", "check", "--json", *options).stdout)
    (result,) = (one for one in checked if one["check"] == "commits")
    assert (result["status"], f"{result['text']}; {result['remedy']}".startswith(reason)) == (FAILED, True)
    assert list(tmp_path.iterdir()) == []


COMMITS = """
import sys
from pathlib import Path
from streaming_app.config.settings import JobConfig
from streaming_app.tables.table_creation import prepare_tables
from tests.tables.test_commit_check import owned_lines

config = JobConfig(bootstrap_server="h:1", warehouse=sys.argv[1], single_writer=True)
print(*owned_lines(config), sep="\\n")
prepare_tables(config.warehouse, print)
print(sorted(file.name for file in Path(sys.argv[1], "lag", "_delta_log").iterdir()))
"""


@needs_filter
@pytest.mark.slow
def test_the_only_job_of_a_file_system_without_hard_links_writes_there(tmp_path: Path) -> None:
    program = tmp_path / "commits.py"
    program.write_text(f"from tests.support.no_links import forbid_links\nforbid_links()\n{COMMITS}", "utf-8")
    ran = subprocess.run(
        [sys.executable, program, tmp_path / "w"], capture_output=True, text=True, check=False, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    warning, files = ran.stdout.splitlines()
    assert "without hard links" in warning
    assert files == "['00000000000000000000.json']"

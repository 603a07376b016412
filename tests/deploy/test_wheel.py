"""The wheel of this checkout: what it installs, and that a user's own modules do not get in its way."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import grimp
import pytest

from streaming_app import query
from streaming_app.cli.main import COMMANDS
from streaming_app.kafka.client import StreamsGroupClient
from streaming_app.sandbox.member import SimulatedMember, subtopology, topology
from tests.support.container import Broker

ROOT = Path(__file__).parents[2]


@pytest.fixture
def beside_a_users_modules(wheel: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of programs that import the wheel, in which a module `schemas` of the user comes first."""
    user, installed = tmp_path / "user", tmp_path / "installed"
    user.mkdir()
    (user / "schemas.py").write_text('raise RuntimeError("the module of the user")', "utf-8")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    return {**os.environ, "PYTHONPATH": f"{user}{os.pathsep}{installed}"}


def run(environment: dict[str, str], directory: Path, *arguments: str) -> str:
    """Return what a command of the wheel prints."""
    program = (sys.executable, "-m", "streaming_app", *arguments)
    ran = subprocess.run(program, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_the_wheel_installs_two_packages_and_in_them_all_definitions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {
        "offsets_decoder",
        "streaming_app",
    }
    definitions = {f"offsets_decoder/{path.relative_to(ROOT)}" for path in (ROOT / "schemas").glob("*/*.*")}
    assert definitions
    assert definitions - set(names) == set()
    assert {"offsets_decoder/py.typed", "streaming_app/py.typed"} <= set(names)  # PEP 561: users' mypy reads the types
    sources = (file for name in ("offsets_decoder", "streaming_app") for file in (ROOT / name).rglob("*.*"))
    kept = {str(file.relative_to(ROOT)) for file in sources if file.is_file() and "__pycache__" not in file.parts}
    assert {name for name in names if ".dist-info/" not in name} == kept | definitions


def test_every_module_of_the_wheel_is_a_command_or_is_imported_by_another_one() -> None:
    graph = grimp.build_graph("streaming_app", "offsets_decoder")
    roots = {
        module
        for module in graph.modules
        if not graph.find_modules_that_directly_import(module) and not graph.find_children(module)
    }
    commands = {f"streaming_app.cli.{module}" for block in COMMANDS.values() for module, _ in block.values()}
    assert roots == {"streaming_app.__main__", *commands}, "what only tests or developers need is not installed"


def test_the_job_and_its_workers_run_beside_a_module_schemas_of_the_user(
    broker: Broker,
    client: StreamsGroupClient,
    group_id: str,
    unique: Callable[[str], str],
    beside_a_users_modules: dict[str, str],
    tmp_path: Path,
) -> None:
    """Also where the working directory cannot be written."""
    SimulatedMember(client, group_id, topology(subtopology("0", source_topics=[unique("missing")]))).join()
    warehouse = tmp_path / "warehouse"

    options = ("--bootstrap-server", broker.bootstrap_server, "--warehouse", str(warehouse), "--once")
    run(beside_a_users_modules, Path("/proc"), "run", *options)

    found = query(warehouse, "SELECT group_id FROM groups").to_pydict()["group_id"]
    assert group_id in found

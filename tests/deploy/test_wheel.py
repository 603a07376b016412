"""The wheel of this checkout: what it installs, and that a user's own modules do not get in its way."""

import zipfile
from pathlib import Path

import grimp
import pytest

from streaming_app.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


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

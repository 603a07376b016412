"""The parts of the documentation that come from the code."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import click
import pytest

from docs import generate
from streaming_app.cli.main import main
from streaming_app.tables.definitions import tables, views

PAGES = generate.pages()


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_the_code_makes_of_it(page: str) -> None:
    assert (generate.DOCS / page).read_text("utf-8") == PAGES[page], "run make generate"


def test_the_command_reference_has_every_command_with_every_option() -> None:
    sections = re.split(r"^## streams-groups ", generate.command_reference(), flags=re.MULTILINE)[1:]
    assert [section.split()[0] for section in sections] == sorted(main.commands)
    for section in sections:
        options = [opt for parameter in main.commands[section.split()[0]].params for opt in parameter.opts]
        assert [opt for opt in options if opt.startswith("--") and opt not in section] == []


def test_the_table_reference_has_every_table_with_every_column() -> None:
    sections = re.split(r"^##+ ", generate.table_reference(), flags=re.MULTILINE)
    columns = {section.split()[0]: re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) for section in sections}
    for table in (*tables(), *views()):
        assert [name for name in columns[table.name] if name in table.names] == list(table.names)
        assert set(table.key[:2] or ("cluster", "group_id")) <= set(columns[table.name])


def test_no_type_in_the_table_reference_repeats_the_columns_of_another() -> None:
    assert "struct<" not in generate.table_reference()


def test_the_list_of_packages_has_every_package() -> None:
    packages = {path.parent.name for path in (generate.ROOT / "streaming_app").glob("*/__init__.py")}
    listed = set(re.findall(r"^\| `(\w+)`", generate.package_table(), re.MULTILINE))
    assert packages - listed == set()
    assert {"offsets_decoder", "schemas"} <= listed


def test_markers_that_are_missing_are_an_error() -> None:
    with pytest.raises(ValueError, match="no markers for packages"):
        generate._replace_part("no markers", "packages", "part")


@pytest.mark.parametrize("picture", [page for page in PAGES if page.endswith(".svg")])
def test_a_picture_is_well_formed_and_nothing_is_drawn_outside_of_it(picture: str) -> None:
    root = ET.fromstring(PAGES[picture])  # noqa: S314 - our own
    _, _, width, height = map(int, root.attrib["viewBox"].split())
    boxes = [element.attrib for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(boxes) > 1
    for box in boxes:
        assert int(box.get("x", 0)) + int(box["width"]) <= width
        assert int(box.get("y", 0)) + int(box["height"]) <= height


def test_the_command_reference_has_the_commands_of_a_command_with_every_option() -> None:
    groups = {name: command for name, command in main.commands.items() if isinstance(command, click.Group)}
    assert "alerts" in groups
    reference = generate.command_reference()
    for name, group in groups.items():
        for own, command in group.commands.items():
            section = reference.partition(f"### streams-groups {name} {own}\n")[2].partition("\n## ")[0]
            section = section.partition("\n### ")[0]
            options = [opt for parameter in command.params for opt in parameter.opts if opt.startswith("--")]
            assert options
            assert [opt for opt in options if opt not in section] == []

"""The README leads to everything else."""

from __future__ import annotations

import pytest

from streaming_app.sandbox import demo
from tests.support.documents import DOCS, README, code_blocks, links, name, shell_commands


@pytest.mark.parametrize("target", ["run", "test"])
def test_the_readme_shows_the_two_make_commands(target: str) -> None:
    assert ["make", target] in list(shell_commands(README))


def test_every_page_that_is_not_an_index_or_an_include_is_linked_from_the_readme() -> None:
    included = {"index.md", *(page.name for page in DOCS.glob("*.md") if "```{include}" in page.read_text("utf-8"))}
    written_here = {name(page) for page in DOCS.glob("*.md") if page.name not in included}
    assert written_here - {link.split("#")[0] for link in links(README)} == set()


def test_the_output_of_the_demo_has_every_table_and_the_readme_shows_a_part_of_it() -> None:
    (transcript,) = (
        block.text for block in code_blocks(DOCS / "getting-started.md", "text") if "Starting" in block.text
    )
    lines = transcript.splitlines()
    assert [title for title, _ in demo._TABLES if title not in lines] == []
    (excerpt,) = (block.text for block in code_blocks(README) if "description_status" in block.text)
    assert set(excerpt.splitlines()) <= set(lines)

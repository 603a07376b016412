"""Links in the documents, as GitHub resolves them and as Sphinx builds them. No address is opened."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.documents import DOCS, DOCUMENTS, README, ROOT, anchors, links, name

_HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_leads_to_a_file_and_a_heading_or_is_a_well_formed_https_address(document: Path) -> None:
    broken = []
    for link in links(document):
        address = urlsplit(link)
        if address.scheme:
            is_good = address.scheme == "https" and bool(_HOST.fullmatch(address.netloc))
        else:
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            is_good = target.exists() and (not anchor or anchor in anchors(target))
        if not is_good:
            broken.append(link)
    assert broken == []


def test_every_page_that_is_not_an_index_or_an_include_is_linked_from_the_readme() -> None:
    included = {"index.md", *(page.name for page in DOCS.glob("*.md") if "```{include}" in page.read_text("utf-8"))}
    written_here = {name(page) for page in DOCS.glob("*.md") if page.name not in included}
    assert written_here - {link.split("#")[0] for link in links(README)} == set()


@pytest.mark.slow
def test_sphinx_builds_every_page_without_a_warning(tmp_path: Path) -> None:
    """Every page is in a table of contents, and every link leads somewhere. No HTML is written, which takes longest."""
    for module in ("sphinx", "myst_parser"):
        pytest.importorskip(module, reason="not installed: pip install '.[docs]'")
    options = ["-W", "--keep-going", "-n", "-q", "-b", "dummy", "-d", tmp_path / "doctrees"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, DOCS, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")


def test_every_module_that_the_architecture_names_exists() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:\w+\.py)?)`", text))
    assert named
    assert [one for one in named if not (ROOT / "streaming_app" / one).exists() and not (ROOT / one).exists()] == []

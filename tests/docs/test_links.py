"""Links in the documents, as GitHub resolves them: files and headings exist, and the README leads to every page.

Links of the built pages are checked by Sphinx, see `test_build.py`. No address is opened.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.documents import DOCS, DOCUMENTS, README, anchors, links, name

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

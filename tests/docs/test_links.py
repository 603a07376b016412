"""Links in the documents, as GitHub resolves them: files and headings exist, addresses are well formed.

Links of the built pages are checked by Sphinx, see `test_build.py`. No address is opened.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.documents import DOCUMENTS, anchors, links, name

_HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    broken = []
    for link in links(document):
        if urlsplit(link).scheme:
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_external_link_is_a_well_formed_https_address(document: Path) -> None:
    parts = [urlsplit(link) for link in links(document)]
    assert [p for p in parts if p.scheme and (p.scheme != "https" or not _HOST.fullmatch(p.netloc))] == []

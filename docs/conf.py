"""How Sphinx builds these pages: `make docs`. Only settings, and where links of included files lead."""
# ruff: noqa: INP001

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

project = _PROJECT["name"]
release = _PROJECT["version"]
copyright = ""  # noqa: A001 - Sphinx's name for it; see LICENSE
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = True
highlight_language = "text"

myst_heading_anchors = 4
# `[text](https:...)` is taken as it is; any other link must lead to a page, a heading or a file of the repository.
myst_url_schemes = ["http", "https"]

html_theme = "furo"
html_title = f"{project} {release}"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}

# Pages that show a file of another folder, by `include`: a link to the file is a link to the page.
_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "deploy/METRICS.md": "metrics.md",
    "deploy/README.md": "deployment.md",
    "deploy/RUNBOOK.md": "runbook.md",
    "deploy/kafka/README.md": "client-properties.md",
    "deploy/spark/README.md": "spark-cluster.md",
    "schemas/RECORDS.md": "records.md",
}
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def _rewrite_links(_app: Sphinx, path: Path, _page: str, content: list[str]) -> None:
    """Make the relative links of an included file relative to this folder; `content` holds its text."""
    folder = (ROOT / "docs" / path).parent.resolve()
    content[0] = _LINK.sub(lambda match: _rewrite_link(match, folder), content[0])


def _rewrite_links_of_page(app: Sphinx, page: str, content: list[str]) -> None:
    """Make links to an included file links to its page. On GitHub, where nothing is included, they lead to the file."""
    _rewrite_links(app, Path(page), page, content)


def _rewrite_link(match: re.Match[str], folder: Path) -> str:
    text, target, anchor = match["text"], match["target"], match["anchor"] or ""
    if ":" in target:
        return match[0]
    file = (folder / target).resolve()
    name = file.relative_to(ROOT).as_posix()
    if file.is_dir():  # a folder has no page; its name says where to look
        return f"`{name}/`"
    return f"[{text}]({_PAGES.get(name) or os.path.relpath(file, ROOT / 'docs')}{anchor})"


def setup(app: Sphinx) -> None:
    """Register what runs while pages are read."""
    app.connect("include-read", _rewrite_links)
    app.connect("source-read", _rewrite_links_of_page)

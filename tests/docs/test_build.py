"""The documentation builds: every page is in a table of contents, every link leads somewhere, no warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import DOCS, ROOT

pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install '.[docs]'")
pytest.importorskip("myst_parser", reason="myst-parser is not installed: pip install '.[docs]'")


@pytest.mark.slow
def test_sphinx_builds_every_page_without_a_warning(tmp_path: Path) -> None:
    options = ["-W", "--keep-going", "-n", "-q", "-b", "html", "-d", tmp_path / "doctrees"]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, DOCS, tmp_path / "html"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")
    pages = {page.stem for page in (tmp_path / "html").glob("*.html")}
    assert {page.stem for page in DOCS.glob("*.md")} <= pages

"""What `pip install` brings for the page."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]


def test_every_installation_has_what_the_page_needs_and_the_extra_web_of_earlier_releases() -> None:
    names = {line.split(">")[0] for line in PROJECT["dependencies"]}
    assert {"jinja2", "starlette", "uvicorn"} <= names
    assert PROJECT["optional-dependencies"]["web"] == []

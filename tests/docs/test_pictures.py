"""The pictures of the documentation that are drawn from the code."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.documents import DOCS


@pytest.mark.parametrize("picture", sorted((DOCS / "figures").glob("*.svg")), ids=lambda file: file.name)
def test_a_picture_is_well_formed_and_nothing_is_drawn_outside_of_it(picture: Path) -> None:
    root = ET.fromstring(picture.read_text("utf-8"))  # noqa: S314 - our own
    _, _, width, height = map(int, root.attrib["viewBox"].split())
    boxes = [element.attrib for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(boxes) > 1
    for box in boxes:
        assert int(box.get("x", 0)) + int(box["width"]) <= width
        assert int(box.get("y", 0)) + int(box["height"]) <= height

"""Writes configuration files for tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    """Writes a configuration file: `write({"cluster": "a"})`."""

    def write(values: Any) -> Path:
        file = tmp_path / "streams-groups.yaml"
        text = values if isinstance(values, (str, bytes)) else yaml.safe_dump(values)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    return write

"""Writes configuration files for tests."""

from __future__ import annotations

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
        file.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
        return file

    return write

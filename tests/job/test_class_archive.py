"""The job makes the archive of Spark's classes once it has run for a while, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_app.errors import SetupError
from streaming_app.job import services
from streaming_app.job.services import ClassArchiveService
from streaming_app.jvm.jar_sets import DIRECTORY_VARIABLE


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The lines of the job; there is no archive yet."""
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(services, "archive_path", lambda _: tmp_path / "none.jsa")
    return []


@pytest.mark.java
@pytest.mark.parametrize(
    ("made", "line"),
    [
        (2_000_000, "Made the archive of Spark's classes: 2 MB in the cache"),
        (None, "There is no archive of Spark's classes: no space"),
    ],
)
def test_it_is_made_once_and_told_or_why_not(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: int | None, line: str
) -> None:
    def make(*_: object, is_stopping: Callable[[], bool]) -> Path:
        assert not is_stopping()
        if made is None:
            raise SetupError("no space")
        (tmp_path / "made").write_bytes(bytes(made))
        return tmp_path / "made"

    monkeypatch.setattr(services, "make_archive", make)
    assert ClassArchiveService(lines.append).turn() is None
    assert len(lines) == 2
    assert lines[0].startswith("Making an archive of Spark's classes")
    assert lines[1] == line

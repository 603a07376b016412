"""The job makes the archive of Spark's classes once it has run for a while, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from streaming_app.errors import SetupError
from streaming_app.job import services
from streaming_app.job.services import ClassArchiveService, can_make_archive
from streaming_app.jvm.jar_sets import DIRECTORY_VARIABLE


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The lines of the job; there is no archive yet."""
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(services, "archive_path", lambda _: tmp_path / "none.jsa")
    return []


@pytest.mark.java
def test_it_is_made_once_and_told(lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.write_bytes(bytes(2_000_000))
    monkeypatch.setattr(services, "make_archive", lambda *_, **__: made)
    assert ClassArchiveService(lines.append).turn() is None
    assert len(lines) == 2
    assert lines[0].startswith("Making an archive of Spark's classes")
    assert lines[1] == "Made the archive of Spark's classes: 2 MB in the cache"


def test_a_failure_is_a_line_and_the_job_goes_on(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Path:
        raise SetupError("no space")

    monkeypatch.setattr(services, "make_archive", fail)
    assert ClassArchiveService(lines.append).turn() is None
    assert len(lines) == 2
    assert lines[1] == "There is no archive of Spark's classes: no space"


def test_a_job_that_ends_does_not_wait_for_it(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    service = ClassArchiveService(lines.append)

    def make(*_: object, is_stopping: Callable[[], bool]) -> Path:
        before = is_stopping()
        service.stop()
        assert (before, is_stopping()) == (False, True)
        raise SetupError("not made in time")

    monkeypatch.setattr(services, "make_archive", make)
    service.turn()
    assert len(lines) == 1  # that it begins


def test_nothing_is_made_in_the_first_ten_minutes(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    service, waits = ClassArchiveService(lines.append), list[float]()

    class Ending(Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return True

    monkeypatch.setattr(service, "stopping", Ending())
    service.start()
    assert service.join(600)
    assert (waits, lines) == ([600], [])


@pytest.mark.usefixtures("lines")
def test_none_can_be_made_where_a_directory_was_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "reason_for_none", lambda: None)
    assert can_make_archive()
    monkeypatch.setenv(DIRECTORY_VARIABLE, "jars")
    assert not can_make_archive()

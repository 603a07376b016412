"""The job makes the archive of Spark's classes once it has run for a while, and says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from streaming_app.errors import SetupError
from streaming_app.job import services
from streaming_app.job.service import Services
from streaming_app.job.services import ClassArchiveService, can_make_archive
from streaming_app.jvm.jar_sets import DIRECTORY_VARIABLE
from tests.waiting import wait_until

Make = Callable[..., "Path | None"]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The lines of the job; there is no archive yet."""
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(services, "archive_path", lambda _: tmp_path / "none.jsa")
    return []


@contextmanager
def making_class_archive(report: Callable[[str], None], **settings: float) -> Iterator[None]:
    with closing(Services()) as running:
        running.start(ClassArchiveService(report, **settings))
        yield


@pytest.mark.java
def test_it_is_made_once_the_time_is_over_and_told(
    lines: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    made.write_bytes(bytes(2_000_000))
    monkeypatch.setattr(services, "make_archive", lambda *_, **__: made)
    with making_class_archive(lines.append, after=0):
        assert wait_until(lambda: len(lines) == 2)
    assert lines[0].startswith("Making an archive of Spark's classes")
    assert lines[1] == "Made the archive of Spark's classes: 2 MB in the cache"


def test_a_failure_is_a_line_and_the_job_goes_on(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Path:
        raise SetupError("no space")

    monkeypatch.setattr(services, "make_archive", fail)
    with making_class_archive(lines.append, after=0):
        assert wait_until(lambda: len(lines) == 2)
    assert lines[1] == "There is no archive of Spark's classes: no space"


def test_a_job_that_ends_does_not_wait_for_it(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def make(*_: object, is_stopping: Callable[[], bool]) -> Path:
        assert wait_until(is_stopping)
        ended.set()
        raise SetupError("not made in time")

    monkeypatch.setattr(services, "make_archive", make)
    with making_class_archive(lines.append, after=0):
        assert wait_until(lambda: bool(lines))
    assert ended.wait(10)
    assert len(lines) == 1


def test_nothing_is_made_before_that_time(lines: list[str]) -> None:
    with making_class_archive(lines.append):
        pass
    assert lines == []


@pytest.mark.usefixtures("lines")
def test_none_can_be_made_where_a_directory_was_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "reason_for_none", lambda: None)
    assert can_make_archive()
    monkeypatch.setenv(DIRECTORY_VARIABLE, "jars")
    assert not can_make_archive()

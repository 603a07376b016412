"""Jars that Ivy fetches: known, and by two processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from streaming_app.jvm import jars
from tests.jvm import test_jars
from tests.support.jvm_archive import cached_jars

pytestmark = pytest.mark.java  # which resolves the artifacts
empty_cache, repository, own_repository = (
    test_jars.empty_cache,
    test_jars.repository,
    test_jars.own_repository,
)  # fixtures


@pytest.mark.usefixtures("own_repository")
def test_two_processes_may_resolve_at_the_same_time(empty_cache: Path) -> None:
    (empty_cache / "ivy-run-of-one-that-was-killed").mkdir(parents=True)
    program = "from streaming_app.jvm import jars; print(len(jars.resolve('org.example:thing:1')))"
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[0].split() for process in both] == [[b"2"], [b"2"]]
    assert not list(empty_cache.glob("ivy-run-*"))


@pytest.fixture
def default_repository(own_repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository of `own_repository`, as the one that Ivy has by default when the jars are known."""
    monkeypatch.delenv("STREAMS_GROUPS_IVY_SETTINGS")
    settings = jars._JARS_ONLY.replace("m2compatible=", f'root="{own_repository.as_uri()}/" m2compatible=')
    monkeypatch.setattr(jars, "_JARS_ONLY", settings)
    return own_repository


KNOWN = ("org.example:part:1", "org.example:thing:1")


def test_known_jars_are_fetched_without_their_poms_in_the_order_that_is_known(
    default_repository: Path, empty_cache: Path
) -> None:
    for pom in default_repository.rglob("*.pom"):
        pom.unlink()
    lines: list[str] = []
    found = jars.resolve("org.example:thing:1", known=KNOWN, progress=lines.append)
    assert [jar.read_text() for jar in found] == ["part", "thing"]
    assert all(jar.is_relative_to(empty_cache) for jar in found)
    assert cached_jars("org.example:thing:1") == found
    assert not list(empty_cache.glob("ivy-run-*"))

"""Jars that Ivy fetches: excluded, known, gone, by two processes, and from repositories that do not answer."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from streaming_app.errors import SetupError
from streaming_app.jvm import jars
from streaming_app.sandbox.process import reserve_port
from tests.jvm import test_jars
from tests.jvm.test_jars import SMALL
from tests.support.jvm_archive import cached_jars

pytestmark = pytest.mark.java  # which resolves the artifacts
empty_cache, repository, own_repository = (
    test_jars.empty_cache,
    test_jars.repository,
    test_jars.own_repository,
)  # fixtures


@pytest.mark.usefixtures("own_repository", "empty_cache")
@pytest.mark.parametrize(("exclusion", "left"), [("org.example:part", ["thing-1.jar"]), ("org.other:*", None)])
def test_an_excluded_artifact_is_not_fetched(exclusion: str, left: list[str] | None) -> None:
    found = jars.resolve("org.example:thing:1", exclude=[exclusion])
    assert [jar.name for jar in found] == (left or ["thing-1.jar", "part-1.jar"])


@pytest.mark.usefixtures("own_repository", "empty_cache")
def test_a_jar_that_was_deleted_is_fetched_again() -> None:
    part = jars.resolve("org.example:thing:1")[1]
    part.unlink()
    assert jars.resolve("org.example:thing:1")[1].read_text() == "part"


@pytest.mark.usefixtures("own_repository")
def test_two_processes_may_resolve_at_the_same_time(empty_cache: Path) -> None:
    program = "from streaming_app.jvm import jars; print(len(jars.resolve('org.example:thing:1')))"
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate()[0].split() for process in both] == [[b"2"], [b"2"]]
    assert not list(empty_cache.glob("ivy-run-*"))


@pytest.mark.usefixtures("empty_cache")
def test_a_jar_missing_from_the_repository_is_named_in_the_error(own_repository: Path) -> None:
    (own_repository / "org/example/part/1/part-1.jar").unlink()
    with pytest.raises(SetupError, match=r"^The repository has no org.example:part:1"):
        jars.resolve("org.example:thing:1")


@pytest.mark.usefixtures("empty_cache")
def test_a_missing_network_is_one_clear_line(repository: Callable[[str], None]) -> None:
    with reserve_port() as closed:
        repository(f"http://127.0.0.1:{closed.getsockname()[1]}/")
        with pytest.raises(
            SetupError, match=r"^Cannot fetch org.lz4:lz4-java:1.8.0: the repository does not answer .*$"
        ):
            jars.resolve(SMALL)


@pytest.mark.usefixtures("own_repository", "empty_cache")
def test_progress_is_reported_during_a_long_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_LOG_SECONDS", 0.1)
    lines: list[str] = []
    jars.resolve("org.example:thing:1", progress=lines.append)
    assert lines
    assert len(set(lines)) == len(lines)
    assert all(line.startswith("Fetching org.example:thing:1: ") for line in lines)


@pytest.mark.usefixtures("own_repository")
def test_a_download_can_be_interrupted(empty_cache: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jars.resolve("org.example:thing:1", poll=interrupt)
    assert cached_jars("org.example:thing:1") == []
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


@pytest.mark.usefixtures("default_repository")
def test_where_a_known_jar_is_not_in_the_repository_the_coordinates_are_resolved(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(jars._Ivy, "resolve", lambda *arguments: asked.append(arguments) or [empty_cache])
    assert jars.resolve("org.example:thing:1", known=("org.example:gone:1", *KNOWN)) == [empty_cache]
    assert len(asked) == 1
    assert not list((empty_cache / "jars").rglob("*.jar"))


@pytest.mark.usefixtures("empty_cache")
def test_a_repository_that_is_silent_is_not_waited_for_twice_as_long(
    default_repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that each look at Ivy moves by a second."""
    looks, resolved = itertools.count(), list[object]()
    now = [0.0]
    monkeypatch.setattr(jars, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))  # noqa: TID251 - the real one
    monkeypatch.setattr(jars._Ivy, "resolve", lambda *arguments: resolved.append(arguments) or [default_repository])
    with reserve_port() as silent:
        silent.listen()
        root = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(jars, "_JARS_ONLY", jars._JARS_ONLY.replace(default_repository.as_uri(), root))

        def look() -> None:
            now[0] = float(next(looks))

        assert jars.resolve("org.example:thing:1", known=KNOWN, poll=look) == [default_repository]
    assert (now[0], len(resolved)) == (16.0, 1)


@pytest.mark.usefixtures("empty_cache")
def test_a_configured_repository_is_used_also_for_known_jars(own_repository: Path) -> None:
    assert own_repository.exists()
    found = jars.resolve("org.example:thing:1", known=("org.example:part:1",))
    assert [jar.read_text() for jar in found] == ["thing", "part"]


@pytest.mark.usefixtures("own_repository")
def test_what_a_killed_process_has_left_is_removed(empty_cache: Path) -> None:
    (empty_cache / "ivy-run-of-another").mkdir(parents=True)
    jars.resolve("org.example:thing:1")
    assert not list(empty_cache.glob("ivy-run-*"))

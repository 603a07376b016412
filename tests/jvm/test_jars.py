"""Jars that Ivy fetches once: what a start of the job or of the demo meets. `long/test_jars` has the other cases."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming_app.errors import SetupError
from streaming_app.jvm import jars

pytestmark = pytest.mark.java  # which resolves the artifacts
SMALL = "org.lz4:lz4-java:1.8.0"  # one jar without dependencies


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("STREAMS_GROUPS_CACHE", str(cache))
    return cache


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Configures Ivy to use only this repository: `repository(root_url)`."""

    def use(root: str) -> None:
        settings = tmp_path / "ivysettings.xml"
        settings.write_text(
            '<ivysettings><settings defaultResolver="only"/><resolvers>'
            f'<ibiblio name="only" m2compatible="true" root="{root}"/></resolvers></ivysettings>'
        )
        monkeypatch.setenv("STREAMS_GROUPS_IVY_SETTINGS", str(settings))

    return use


@pytest.fixture
def own_repository(tmp_path: Path, repository: Callable[[str], None]) -> Path:
    """A repository on disk with one artifact, org.example:thing:1, that depends on org.example:part:1."""
    root = tmp_path / "repository"
    for name, required in (("thing", "part"), ("part", None)):
        directory = root / "org" / "example" / name / "1"
        directory.mkdir(parents=True)
        coordinates = f"<groupId>org.example</groupId><artifactId>{required}</artifactId><version>1</version>"
        dependency = f"<dependency>{coordinates}</dependency>"
        (directory / f"{name}-1.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{name}</artifactId>"
            f"<version>1</version><dependencies>{dependency if required else ''}</dependencies></project>"
        )
        (directory / f"{name}-1.jar").write_bytes(name.encode())
    repository(root.as_uri() + "/")
    return root


def test_an_artifact_is_fetched_with_its_dependencies_once_and_then_neither_repository_nor_java_is_needed(
    own_repository: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = jars.resolve("org.example:thing:1")
    assert [jar.name for jar in found] == ["thing-1.jar", "part-1.jar"]
    assert [jar.read_text() for jar in found] == ["thing", "part"]
    assert all(jar.is_relative_to(empty_cache) for jar in found)
    shutil.rmtree(own_repository)
    monkeypatch.setattr(jars, "find_java", lambda: pytest.fail("Java was needed"))
    monkeypatch.setattr(jars, "FileLock", lambda _: pytest.fail("another process was waited for"))
    assert jars.resolve("org.example:thing:1") == found


@pytest.mark.usefixtures("own_repository", "empty_cache")
def test_an_artifact_that_does_not_exist_is_named_in_the_error() -> None:
    with pytest.raises(SetupError, match=r"^The repository has no org.example:thing:2 .*check the version$"):
        jars.resolve("org.example:thing:2")


def test_a_cache_that_cannot_be_written_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STREAMS_GROUPS_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, match=r"set another STREAMS_GROUPS_CACHE$"):
        jars.resolve(SMALL)

"""The pinned jars: found in a directory, downloaded into the cache, and refused with another checksum."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.errors import SetupError
from streaming_app.jvm.jars import JarSet, connector_coordinates, connector_jars, fetch_jars, find_jars, kafka_jars
from streaming_app.jvm.spark_installation import TESTED, installed_spark, version_warning
from streaming_app.jvm.spark_session import _settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
CONTENTS = {"org.example:thing:1": b"thing", "org.example.parts:part:2": b"part"}
TWO = JarSet("the jars of a test", {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.delenv("STREAMS_GROUPS_JARS", raising=False)
    monkeypatch.setenv("STREAMS_GROUPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository with two jars, which is the only one that is known."""
    root = tmp_path / "repository"
    for path, content in (
        ("org/example/thing/1/thing-1.jar", b"thing"),
        ("org/example/parts/part/2/part-2.jar", b"part"),
    ):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_bytes(content)
    monkeypatch.setenv("STREAMS_GROUPS_MAVEN", root.as_uri())
    return root


def test_jars_are_downloaded_once_in_the_order_of_the_class_path(repository: Path, cache: Path) -> None:
    found = find_jars(TWO)
    assert [jar.name for jar in found] == ["thing-1.jar", "part-2.jar"]
    assert [jar.read_bytes() for jar in found] == [b"thing", b"part"]
    assert all(jar.is_relative_to(cache) for jar in found)
    (repository / "org/example/thing/1/thing-1.jar").unlink()
    assert find_jars(TWO) == found


def test_a_jar_with_another_checksum_is_refused_and_not_kept(repository: Path, cache: Path) -> None:
    (repository / "org/example/thing/1/thing-1.jar").write_bytes(b"forged")
    with pytest.raises(SetupError, match=r"has another thing-1\.jar than the one that was tested: its SHA-256"):
        find_jars(TWO)
    assert [path.name for path in cache.rglob("*") if path.is_file()] in ([], ["part-2.jar"])


def test_a_jar_that_the_repository_lacks_is_named(repository: Path) -> None:
    (repository / "org/example/thing/1/thing-1.jar").unlink()
    with pytest.raises(SetupError, match=r"Cannot download the jars of a test|has no org\.example:thing:1"):
        find_jars(TWO)


@pytest.mark.usefixtures("repository")
def test_a_download_ends_when_the_job_does(cache: Path) -> None:
    def poll() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_jars(TWO, poll=poll)
    assert not list(cache.rglob("*.part"))


def test_no_message_shows_the_password_of_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_GROUPS_MAVEN", "http://user:hunter2@127.0.0.1:9/maven2")
    monkeypatch.setattr("streaming_app.jvm.jars._ATTEMPTS", 1)
    with pytest.raises(SetupError, match=r"Cannot download the jars of a test from 127\.0\.0\.1:9: ") as raised:
        find_jars(TWO)
    assert "hunter2" not in str(raised.value)
    monkeypatch.setenv("STREAMS_GROUPS_MAVEN", "maven.example.org")
    with pytest.raises(SetupError, match=r"^STREAMS_GROUPS_MAVEN must be the URL"):
        find_jars(TWO)


@pytest.mark.usefixtures("repository")
def test_a_cache_that_cannot_be_written_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("STREAMS_GROUPS_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, match=r"set another STREAMS_GROUPS_CACHE$"):
        find_jars(TWO)


def test_jars_of_a_directory_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_GROUPS_JARS", str(tmp_path))
    (tmp_path / "part-2.jar").write_bytes(b"part")
    with pytest.raises(SetupError, match=r"thing-1\.jar is missing; .*streams-groups jars fetch"):
        find_jars(TWO)
    (tmp_path / "thing-1.jar").write_bytes(b"thi")
    with pytest.raises(SetupError, match=r"from STREAMS_GROUPS_JARS=.*: thing-1\.jar has the SHA-256 .* instead of"):
        find_jars(TWO)
    (tmp_path / "thing-1.jar").write_bytes(b"thing")
    assert find_jars(TWO) == [tmp_path / "thing-1.jar", tmp_path / "part-2.jar"]


@pytest.mark.parametrize("version", TESTED)
def test_there_is_a_list_for_every_tested_version(version: str) -> None:
    assert f"spark-sql-kafka-0-10_2.13-{version}.jar" in connector_jars(version).names


def test_spark_resolves_the_connector_of_a_version_without_a_list() -> None:
    untested = connector_jars("4.0.5")
    assert find_jars(untested) == []
    settings = _settings({}, [])
    assert settings["spark.jars.packages"] == connector_coordinates(installed_spark())
    assert "spark.driver.extraClassPath" not in settings
    assert version_warning("4.0.5") is not None
    assert version_warning() is None


@pytest.mark.java  # which downloads them
def test_fetched_jars_are_carried_in_a_directory_and_verified_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_of_tests: Callable[[], None]
) -> None:
    cache_of_tests()
    directory = tmp_path / "carried"
    result = CliRunner().invoke(main, ["jars", "fetch", "--directory", str(directory), "--demo"])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"To use them: export STREAMS_GROUPS_JARS={directory}"
    monkeypatch.setenv("STREAMS_GROUPS_JARS", str(directory))
    for jar_set in (connector_jars(), kafka_jars()):
        assert [jar.name for jar in find_jars(jar_set)] == jar_set.names
    (connector,) = directory.glob("spark-sql-kafka-*.jar")
    connector.write_bytes(connector.read_bytes()[:-1])
    with pytest.raises(SetupError, match=f"{connector.name} has the SHA-256"):
        find_jars(connector_jars())


@pytest.fixture
def cache_of_tests(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets a test use the cache that all tests share."""
    return lambda: monkeypatch.delenv("STREAMS_GROUPS_CACHE")


def test_the_package_requires_the_versions_that_were_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", "\n".join(project["dependencies"]), re.MULTILINE))
    assert {"pyspark", "delta-spark", "py4j", "deltalake", "kafka-python", "construct"} == set(pinned)
    assert pinned["pyspark"] == TESTED[0] == installed_spark()
    constraints = dict(
        re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    )
    assert {name: constraints[name] for name in pinned} == pinned


def test_the_documents_name_the_tested_versions() -> None:
    text = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| .+ \|$", text, re.MULTILINE)
    assert [spark for spark, _ in rows] == list(TESTED)

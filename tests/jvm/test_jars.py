"""Jars that are listed with their checksums: downloaded once, or carried in a directory; and those without a list."""

import hashlib
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from offsets_decoder.definitions import load_toml
from streaming_app.cli.main import main
from streaming_app.errors import SetupError
from streaming_app.jvm import jars
from streaming_app.jvm.jars import JarSet, connector_jars, find_jars, kafka_jars
from streaming_app.jvm.spark_installation import TESTED, installed_spark, version_warning
from streaming_app.jvm.spark_session import _settings

ROOT = Path(__file__).parents[2]
CONTENTS = {"org.example:b:1": b"second", "org.example:a:1": b"first"}
TWO_JARS = JarSet(
    "test", "the jars of a test", (), {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
)
NAMES = ["b-1.jar", "a-1.jar"]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository with two jars, and an empty cache."""
    root = tmp_path / "repository" / "org" / "example"
    for name, content in CONTENTS.items():
        _, artifact, version = name.split(":")
        (root / artifact / version).mkdir(parents=True)
        (root / artifact / version / jars.jar_name(name)).write_bytes(content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path / "repository")))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("STREAMS_GROUPS_MAVEN", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("STREAMS_GROUPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("STREAMS_GROUPS_JARS", raising=False)
    yield root
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("repository")
def test_jars_are_downloaded_once_in_the_order_of_the_class_path_and_then_no_repository_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_jars(TWO_JARS)
    assert [jar.name for jar in found] == NAMES
    assert [jar.read_bytes() for jar in found] == list(CONTENTS.values())
    assert all(jar.is_relative_to(tmp_path / "cache") for jar in found)
    monkeypatch.setenv("STREAMS_GROUPS_MAVEN", "http://127.0.0.1:1")
    assert find_jars(TWO_JARS) == found


def test_a_jar_of_the_repository_with_another_checksum_is_refused_and_not_used_later(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "a" / "1" / "a-1.jar").write_bytes(b"forged")
    for _ in range(2):
        with pytest.raises(SetupError, match=r"^a-1\.jar has the SHA-256 .* instead of .*, from the repository"):
            find_jars(TWO_JARS)
    assert [file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()] == ["b-1.jar"]


def test_what_the_repository_does_not_have_or_that_it_does_not_answer_is_one_clear_line(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "a" / "1" / "a-1.jar").unlink()
    with pytest.raises(SetupError, match=r"^Cannot fetch org\.example:a:1: the repository answers 404"):
        find_jars(TWO_JARS)
    monkeypatch.setenv("STREAMS_GROUPS_MAVEN", "http://127.0.0.1:1")
    with pytest.raises(SetupError, match=r"the repository does not answer.*STREAMS_GROUPS_MAVEN can name another"):
        find_jars(TWO_JARS)


def test_a_carried_jar_that_was_cut_on_its_way_is_refused_and_one_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMS_GROUPS_JARS", str(tmp_path))
    for name, content in zip(NAMES, CONTENTS.values(), strict=True):
        (tmp_path / name).write_bytes(content)
    assert find_jars(TWO_JARS) == [tmp_path / name for name in NAMES]
    cut = tmp_path / "a-1.jar"
    cut.write_bytes(b"fir")
    with pytest.raises(SetupError, match=r"from STREAMS_GROUPS_JARS=.*: a-1\.jar has the SHA-256 .* instead of"):
        find_jars(TWO_JARS)
    cut.unlink()
    with pytest.raises(SetupError, match=r"a-1\.jar is missing; .*streams-groups check --fetch-jars"):
        find_jars(TWO_JARS)


def test_of_untested_versions_spark_fetches_the_jars_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMS_GROUPS_JARS", raising=False)
    untested = connector_jars("4.0.5")
    assert find_jars(untested) == []
    settings = _settings(tmp_path / "log", {}, untested, [])
    assert settings["spark.jars.packages"] == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.5"
    assert "spark.driver.extraClassPath" not in settings
    assert "was not tested" in (version_warning("4.0.5") or "")
    assert version_warning() is None


def test_the_package_requires_the_versions_that_were_tested() -> None:
    project = load_toml(ROOT / "pyproject.toml")["project"]
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", "\n".join(project["dependencies"]), re.MULTILINE))
    assert {"pyspark", "delta-spark", "py4j", "deltalake", "kafka-python", "construct"} == set(pinned)
    assert pinned["pyspark"] == TESTED[0] == installed_spark()
    constraints = dict(
        re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    )
    assert {name: constraints[name] for name in pinned} == pinned


def test_the_documents_name_the_tested_versions_and_each_has_a_list() -> None:
    text = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| .+ \|$", text, re.MULTILINE)
    assert [spark for spark, _ in rows] == list(TESTED)
    assert all(connector_jars(version).checksums for version in TESTED)


@pytest.mark.java  # as its jars are fetched if the cache has none
def test_fetched_jars_are_carried_in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "carried"
    monkeypatch.setenv("STREAMS_GROUPS_JARS", str(directory))
    result = CliRunner().invoke(main, ["check", "--fetch-jars", str(directory), "--demo"])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"To use them: export STREAMS_GROUPS_JARS={directory}"
    for jar_set in (connector_jars(), kafka_jars()):
        assert len(find_jars(jar_set)) == len(jar_set.checksums)

